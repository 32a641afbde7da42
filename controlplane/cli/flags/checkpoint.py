"""Define the flags of a job for its checkpoints: when they are made, where they go, how long they stay.

A checkpoint is a snapshot made durable, so --checkpoint-every must be a multiple of --snapshot-every, and
--full-every one of --checkpoint-every. Flags that are not given are fitted to those that are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.parser import one_of, seconds, whole

if TYPE_CHECKING:
    import argparse

    from controlplane.cli.flags.parser import Parser

_SNAPSHOT_EVERY = 10
_FULL_EVERY = 1000
_STEPS = whole(1, "a count of steps")
AUTO = "auto"


def add_checkpoint_flags(parser: Parser) -> None:
    """Add them all, in two groups: when, and where."""
    _add_when(parser)
    _add_where(parser)


def _add_when(parser: Parser) -> None:
    when = parser.add_argument_group("when snapshots and checkpoints are made")
    when.add_argument(
        "--snapshot-every",
        type=_steps_or_auto,
        default=None,
        metavar="STEPS|auto",
        help="steps between two snapshots, copies into the agent's memory; auto: "
        f"{_SNAPSHOT_EVERY}, and fewer where a dead rank costs steps and a snapshot little (default: auto)",
    )
    when.add_argument(
        "--checkpoint-every", type=_STEPS, default=None, metavar="STEPS",
        help="steps between two checkpoints on storage (default: 100)",
    )  # fmt: skip
    when.add_argument(
        "--checkpoint-every-s", type=seconds(0.0), default=0.0, metavar="SECONDS",
        help="also make a checkpoint when the last is this old; 0: by steps only",
    )  # fmt: skip
    when.add_argument(
        "--checkpoint-auto", action="store_true",
        help="choose the interval that loses least (Young/Daly), from the observed failures and costs",
    )  # fmt: skip
    when.add_argument(
        "--full-every", type=_STEPS, default=None, metavar="STEPS",
        help=f"steps between two full checkpoints; others write only changes (default: {_FULL_EVERY})",
    )  # fmt: skip


def _add_where(parser: Parser) -> None:
    where = parser.add_argument_group("where checkpoints are stored, and how long")
    where.add_argument(
        "--storage",
        default="",
        metavar="URL",
        help="where checkpoints go: a folder or any fsspec URL; without it there are no checkpoints",
    )
    where.add_argument("--mirror", default="", metavar="URL", help="a second storage for every checkpoint")
    where.add_argument(
        "--commit-when", type=one_of("both", "first"), default=None, metavar="both|first",
        help="with --mirror: a checkpoint counts when both storages hold it, or the first (default: both)",
    )  # fmt: skip
    where.add_argument(
        "--codec", type=one_of("none", "zstd", "auto"), default="auto", metavar="none|zstd|auto",
        help="compression; auto: where the upload is slower than compressing",
    )  # fmt: skip
    count = whole(0, "a count of checkpoints")
    where.add_argument(
        "--keep-last",
        type=count,
        default=0,
        metavar="N",
        help="how many of the newest checkpoints to keep; 0: all",
    )
    where.add_argument(
        "--keep-every", type=whole(0, "a count of steps"), default=0, metavar="STEPS",
        help="with --keep-last: also keep the first checkpoint of every STEPS steps for ever; 0: none",
    )  # fmt: skip
    where.add_argument(
        "--replicas", type=whole(0, "a count of copies"), default=1, metavar="N",
        help="copies of each snapshot in the memory of other nodes",
    )  # fmt: skip
    where.add_argument(
        "--scrub-every-s", type=seconds(0.0), default=3600.0, metavar="SECONDS",
        help="time between two background verifications of the newest checkpoint; 0: never",
    )  # fmt: skip


def checkpoint_fields(values: argparse.Namespace) -> dict[str, Any]:
    """The fields of a JobSpec that these flags describe. Raises UsageError when flags contradict each
    other."""
    _check(values)
    given = None if values.snapshot_every == AUTO else values.snapshot_every
    snapshot, checkpoint, full = _cadence(given, values.checkpoint_every, values.full_every)
    return {
        "storage": storage_url(values.storage),
        "mirror": storage_url(values.mirror),
        "commit_when": values.commit_when or "both",
        "codec": values.codec,
        "snapshot_every": snapshot,
        "snapshot_auto": given is None,
        "checkpoint_every": checkpoint,
        "checkpoint_every_s": values.checkpoint_every_s,
        "checkpoint_auto": values.checkpoint_auto,
        "full_every": full,
        "keep_last": values.keep_last,
        "keep_every": values.keep_every,
        "replicas": values.replicas,
        "scrub_every_s": values.scrub_every_s,
    }


def _steps_or_auto(text: str) -> int | str:
    """Parse --snapshot-every."""
    return AUTO if text == AUTO else _STEPS(text)


def _check(values: argparse.Namespace) -> None:
    if values.checkpoint_auto and (values.checkpoint_every is not None or values.checkpoint_every_s):
        given = "--checkpoint-every" if values.checkpoint_every is not None else "--checkpoint-every-s"
        raise UsageError(f"--checkpoint-auto chooses the interval itself: drop it, or {given}")
    if values.keep_every and not values.keep_last:
        raise UsageError(
            f"--keep-every {values.keep_every} has no effect, because all checkpoints are kept: "
            "give --keep-last N too"
        )
    if values.commit_when and not values.mirror:
        raise UsageError(f"--commit-when {values.commit_when} needs a second storage: give --mirror URL")
    if values.mirror and not values.storage:
        raise UsageError("--mirror is a second storage: name the first with --storage URL")
    if values.mirror and storage_url(values.mirror) == storage_url(values.storage):
        raise UsageError(f"--mirror {values.mirror} is the storage itself: name another place")


def _cadence(snapshot: int | None, checkpoint: int | None, full: int | None) -> tuple[int, int, int]:
    if checkpoint is None:
        checkpoint = 100 if snapshot is None or 100 % snapshot == 0 else 10 * snapshot
    if snapshot is None:
        snapshot = max(n for n in range(1, _SNAPSHOT_EVERY + 1) if checkpoint % n == 0)
    if checkpoint % snapshot:
        raise UsageError(
            f"--checkpoint-every {checkpoint} is not a multiple of --snapshot-every {snapshot}: a checkpoint "
            f"is a snapshot made durable; give {math.ceil(checkpoint / snapshot) * snapshot}, say"
        )
    if full is None:
        full = math.ceil(_FULL_EVERY / checkpoint) * checkpoint
    if full % checkpoint:
        raise UsageError(
            f"--full-every {full} is not a multiple of --checkpoint-every {checkpoint}; "
            f"give {math.ceil(full / checkpoint) * checkpoint}, say"
        )
    return snapshot, checkpoint, full


def storage_url(text: str) -> str:
    """An fsspec URL: a bare path becomes an absolute file:// URL."""
    if not text or "://" in text or "::" in text:
        return text
    return Path(text).absolute().as_uri()
