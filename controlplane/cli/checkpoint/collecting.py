"""`holdfast checkpoint gc`: delete what need not be kept. Without --apply it only shows what would go.

What to keep is decided by the same function as in a coordinator (`retention.removable`), and deleted by the
same one as in an agent (`collect`). Use it on jobs that have ended: of a running job, only their age
(--grace-s) protects files that its next checkpoint will name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.adopting import record
from controlplane.cli.checkpoint.place import add_place, one_job, opened
from controlplane.cli.errors import FAILED, OK, CliError, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, seconds, whole
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import plain
from controlplane.core.checkpoint.retention import removable
from controlplane.reporting.quantities import size
from holdfast.checkpoint import collect, load
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from holdfast.checkpoint.storage.store import Store

ABOUT = (
    "Delete the checkpoints of a job that need not be kept, and files that belong to none. Without --apply "
    "it only shows what it would delete. For jobs that have ended: a running job's coordinator does this "
    "itself (the job's --keep-last)."
)


def _flags(parser: Parser) -> None:
    count = whole(0, "a count")
    add_place(parser)
    parser.add_argument(
        "--keep-last", type=count, default=0, metavar="N", help="keep the newest N (default: all)"
    )
    parser.add_argument(
        "--keep-every", type=count, default=0, metavar="STEPS", help="also keep multiples of STEPS; 0: none"
    )
    parser.add_argument(
        "--grace-s",
        type=seconds(0.0),
        default=collect.GRACE_S,
        metavar="SECONDS",
        help="keep every file that is younger (default: 3600)",
    )
    parser.add_argument("--apply", action="store_true", help="delete, instead of showing what would go")


def gc(values: argparse.Namespace) -> int:
    """Show what would be deleted, or with --apply delete it. Exit code 1 when not all of it could go."""
    _check(values)
    with opened(values) as store:
        result = _collect(store, one_job(store, values.job), values)
    print(data(values.output, result) or _text(result))
    return FAILED if result["reason"] else OK


def _check(values: argparse.Namespace) -> None:
    if values.keep_every and not values.keep_last:
        raise UsageError("--keep-every adds to what --keep-last keeps: give --keep-last too")


def _collect(store: Store, job: str, values: argparse.Namespace) -> dict[str, Any]:
    ids = [found.id for found in load.listing(store, job)]
    remove = _unwanted(store, job, ids, values)
    keep = [name for name in ids if name not in remove]
    done = (_delete if values.apply else _look)(store, job, remove, keep, values.grace_s)
    return {"job": job, "applied": values.apply, "removed": list(remove), **done}


def _look(
    store: Store, job: str, remove: Sequence[str], keep: Sequence[str], grace_s: float
) -> dict[str, Any]:
    plan = collect.plan(store, job, remove, keep, (), now_s=time.time(), grace_s=grace_s)
    files = len(plan.manifests) + len(plan.chunks) + len(plan.drafts)
    return _result(plan.kept, files, plan.nbytes, plan.bases, plan.blocked)


def _delete(
    store: Store, job: str, remove: Sequence[str], keep: Sequence[str], grace_s: float
) -> dict[str, Any]:
    done = collect.run(store, job, remove, keep, (), now_s=time.time(), grace_s=grace_s)
    return _result(done.kept, done.files, done.bytes_freed, done.bases, done.reason)


def _result(
    kept: Sequence[str], files: int, nbytes: int, bases: Sequence[str], reason: str
) -> dict[str, Any]:
    return {"kept": list(kept), "files": files, "bytes": nbytes, "bases": list(bases), "reason": reason}


def _unwanted(store: Store, job: str, ids: Sequence[str], values: argparse.Namespace) -> Sequence[str]:
    if not values.keep_last:
        return ()
    try:
        records = [record(store, job, name) for name in ids]
    except (CheckpointCorrupt, CheckpointRefused) as error:
        raise CliError(f"{error}; nothing was deleted: see `holdfast checkpoint verify`") from error
    return removable(records, values.keep_last, values.keep_every)


def _text(result: dict[str, Any]) -> str:
    did = "deleted" if result["applied"] else "would delete"
    rows = [[name, did] for name in result["removed"]] + [[name, "kept"] for name in result["kept"]]
    lines = [plain(["CHECKPOINT", ""], rows)] if rows else []
    lines.append(f"{did} {result['files']} files, {size(result['bytes'])}")
    if result["reason"]:
        lines.append(f"some files could not be deleted: {result['reason']}")
    elif not result["applied"] and result["files"]:
        lines.append("nothing was deleted: give --apply to delete these files")
    return "\n".join(lines)


COMMANDS = {"gc": CommandSpec(ABOUT, gc, _flags)}
