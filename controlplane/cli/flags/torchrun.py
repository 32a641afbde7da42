"""Take torchrun's flags of workers and their output: what Holdfast does so too, does otherwise, or refuses.

torchrun's notation for streams: `0` none, `1` standard output, `2` standard error, `3` both; for all local
ranks, or per local rank as `0:3,1:0`, where a rank that is not named gets none. Here both streams of a
process go into one file, and the same lines to the terminal, or not. So both must be shown, or neither."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError
from controlplane.settings import LOCAL_RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.cli.flags.parser import Parser

_OTHERWISE = {
    "start_method": "every rank is a process of its own, forked from an interpreter that has imported torch",
    "monitor_interval": "the end of a rank is noticed at once, without polling",
    "numa_binding": "ranks are not bound to CPUs, because a spare may take the place of any rank of its node",
}
"""Flags that are accepted, and what Holdfast does instead."""
_HIDDEN = (
    "--virtual-local-rank is not possible: a spare takes the place of any rank of its node, so every process "
    "must see all GPUs. Leave the flag out, and let the script use the device LOCAL_RANK"
)
_STREAMS = re.compile(r"[0-3]|[0-9]{1,4}:[0-3](,[0-9]{1,4}:[0-3])*")
_OUT, _ERR, _BOTH = 1, 2, 3

Streams = int | dict[int, int]
"""Streams of all local ranks, or of each one that is named: 1, 2 or 3."""


def add_worker_flags(parser: Parser) -> None:
    """Add the flags that say how workers are started and what they are called."""
    workers = parser.add_argument_group("workers (torchrun's flags)")
    workers.add_argument("--role", default="default", metavar="NAME", help="ROLE_NAME of the ranks")
    workers.add_argument(
        "--start-method", choices=("spawn", "fork", "forkserver"), default=None,
        help="accepted for torchrun's sake, without effect",
    )  # fmt: skip
    workers.add_argument(
        "--monitor-interval", default=None, metavar="SECONDS",
        help="accepted for torchrun's sake, without effect",
    )  # fmt: skip
    workers.add_argument(
        "--numa-binding", choices=("node", "socket", "exclusive", "core-complex"), default=None,
        help="accepted for torchrun's sake, without effect",
    )  # fmt: skip
    workers.add_argument(
        "--virtual-local-rank", action="store_true", help="refused: every process must see all GPUs"
    )


def add_output_flags(parser: Parser) -> None:
    """Add the flags that say whose output comes to the terminal."""
    shown = parser.add_argument_group("output of the ranks (torchrun's flags)")
    shown.add_argument(
        "-r", "--redirects", type=streams, default=0, metavar="0|3|RANK:0|3,...",
        help="whose output goes to files only: 3 of all local ranks, 1:3 of local rank 1 (default: none)",
    )  # fmt: skip
    shown.add_argument(
        "-t", "--tee", type=streams, default=0, metavar="0|3|RANK:0|3,...",
        help="whose output also comes to the terminal, despite --redirects (default: none)",
    )  # fmt: skip
    shown.add_argument(
        "--local-ranks-filter", type=_ranks, default=(), metavar="RANK,...",
        help="show the output of these local ranks only (default: of all)",
    )  # fmt: skip


def streams(text: str) -> Streams:
    """Parse torchrun's notation of streams. Raises ArgumentTypeError."""
    if _STREAMS.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no streams: give 0 (none), 1 (output), 2 (errors) or 3 (both), "
            "or one of them per local rank, as 0:3,1:0"
        )
    if ":" not in text:
        return int(text)
    pairs = [piece.split(":") for piece in text.split(",")]
    return {int(rank): int(which) for rank, which in pairs}


def _ranks(text: str) -> tuple[int, ...]:
    if LOCAL_RANKS.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no local ranks: give them as 0,1,2")
    return tuple(sorted({int(piece) for piece in text.split(",")}))


def asked_otherwise(values: argparse.Namespace) -> list[str]:
    """A line for each given flag that is accepted, and what Holdfast does instead. Raises UsageError for one
    whose absence the script would notice."""
    if values.virtual_local_rank:
        raise UsageError(_HIDDEN)
    if values.monitor_interval is not None:
        _check_interval(values.monitor_interval)
    given = {name: does for name, does in _OTHERWISE.items() if getattr(values, name) is not None}
    return [f"--{name.replace('_', '-')} has no effect: {does}" for name, does in given.items()]


def _check_interval(text: str) -> None:
    try:
        float(text)
    except ValueError as error:
        raise UsageError(f"argument --monitor-interval: {text!r} is not a number") from error


def role_variables(values: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """The environment variables by which the ranks get the name of their role."""
    return (("ROLE_NAME", values.role),) if values.role != "default" else ()


def shown_ranks(values: argparse.Namespace) -> tuple[int, ...]:
    """The local ranks of a node whose output comes to the terminal. Raises UsageError for a local rank that
    no node has, and where only one of two streams would be shown."""
    count = values.nproc_per_node
    named = {
        "--redirects": values.redirects,
        "--tee": values.tee,
        "--local-ranks-filter": dict.fromkeys(values.local_ranks_filter, _BOTH),
    }
    for flag, which in named.items():
        _check_ranks(flag, which if isinstance(which, dict) else {}, count)
    wanted = set(values.local_ranks_filter) or set(range(count))
    return tuple(rank for rank in range(count) if _is_shown(values, rank) and rank in wanted)


def _check_ranks(flag: str, which: Mapping[int, int], count: int) -> None:
    unknown = [rank for rank in which if rank >= count]
    if unknown:
        raise UsageError(
            f"{flag} names local rank {unknown[0]}, but a node has --nproc-per-node {count}: "
            f"give ranks from 0 to {count - 1}"
        )


def _is_shown(values: argparse.Namespace, rank: int) -> bool:
    """Whether the output of this local rank comes to the terminal, by torchrun's rule: a stream that is not
    redirected does, and one that is teed."""
    shown = _of(values.tee, rank) | (_BOTH & ~_of(values.redirects, rank))
    if shown in (_OUT, _ERR):
        raise UsageError(
            f"--redirects and --tee would show one stream of local rank {rank} and hide the other: both go "
            "into one file here, so give 3 or 0"
        )
    return shown == _BOTH


def _of(which: Streams, rank: int) -> int:
    return which.get(rank, 0) if isinstance(which, dict) else which
