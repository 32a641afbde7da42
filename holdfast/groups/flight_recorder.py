"""Read from torch's flight recorder how far each process group of this rank has come."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.distributed import distributed_c10d

from holdfast.groups import torch_recorders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.groups.torch_recorders import Document

RECORDED = 64
"""Collectives that the recorder keeps; their names and sizes go into the report of a hung rank."""

GROUPS_MAX = 16
"""The largest number of groups in a report."""


def enable() -> None:
    """Make torch record collectives, unless the environment sets it otherwise. torch reads it with the first
    one."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(RECORDED))


def collectives() -> list[dict[str, Any]]:
    """For each group of this rank: how many collectives it has entered and ended, and the last one.

    May be called from any thread. It takes milliseconds, so call it on demand only."""
    recorded = newest(torch_recorders.dumps())
    found = []
    for group, name in list(distributed_c10d._world.pg_names.items()):
        counted: Any = group  # torch's annotations lack it
        try:
            sequence = int(counted._get_sequence_number_for_group())
        except RuntimeError:  # a backend that does not count
            continue
        last = _of_now(recorded.get(name), sequence)
        ranks = sorted(distributed_c10d._world.pg_group_ranks.get(group, {}))
        found.append(
            {
                "group": _label(name, ranks),
                "sequence": last.sequence,
                "ended": last.ended,
                "operation": last.operation,
                "bytes": last.bytes,
            }
        )
    return found[:GROUPS_MAX]


@dataclass(frozen=True, slots=True)
class LastCollective:
    """The newest collective of a group.

    Only collectives are counted, which all ranks of a group enter alike. A group's own number also counts
    what two of its ranks send each other (on gloo).

    - `sequence`: collectives entered. `ended`: those that have ended; -1: not known.
    - `operation`, `bytes`: its name ("" if not known) and the size of its inputs."""

    sequence: int
    ended: int = -1
    operation: str = ""
    bytes: int = 0
    number: int = 0  # the group's own number when it entered this one
    created_ns: int = 0  # when, by torch's clock


def _of_now(last: LastCollective | None, number: int) -> LastCollective:
    """Drop what belongs to an older group of the same name.

    Entries beyond the present group's own number are of the older one; the present group has entered none."""
    if last is None:
        return LastCollective(number)
    return last if last.number <= number else LastCollective(0)


def _label(name: str, ranks: list[int]) -> str:
    """The group's name with its ranks, because another group elsewhere may have the same name."""
    if not ranks:
        return name
    span = f"{ranks[0]}-{ranks[-1]}" if ranks[-1] - ranks[0] == len(ranks) - 1 else f"{ranks[0]}.. "
    return f"{name} (ranks {span.strip()}, {len(ranks)} of them)"


def newest(documents: Iterable[Document]) -> dict[str, LastCollective]:
    """By group, the newest collective that torch's flight recorders have. A group with several backends is in
    several of them."""
    found: dict[str, LastCollective] = {}
    for document in documents:
        by_group: dict[str, list[dict[str, Any]]] = {}
        for entry in document.get("entries") or ():
            if not entry.get("is_p2p"):
                by_group.setdefault(str(entry["process_group"][0]), []).append(entry)
        statuses = document.get("pg_status") or {}
        for name, entries in by_group.items():
            last = _last(entries, statuses)
            if name not in found or last.created_ns > found[name].created_ns:
                found[name] = last
    return found


def _last(entries: list[dict[str, Any]], statuses: dict[str, dict[str, Any]]) -> LastCollective:
    last = entries[-1]
    completed = int(statuses.get(str(last.get("pg_id")), {}).get("last_completed_collective", -1))
    entered, number = last["collective_seq_id"], last["op_id"]
    over = [e["collective_seq_id"] for e in entries if e["op_id"] <= completed <= number]
    ended = max((each for each in over if each <= entered), default=-1)
    name, created_ns = str(last.get("profiling_name", "")), int(last.get("time_created_ns", 0))
    return LastCollective(entered, ended, name, _bytes(last), number, created_ns)


_WIDTHS = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


def _bytes(entry: dict[str, Any]) -> int:
    total = 0
    for sizes, kind in zip(entry.get("input_sizes", ()), entry.get("input_dtypes", ()), strict=False):
        count = 1
        for size in sizes:
            count *= size
        total += count * _WIDTHS.get(kind, 1)
    return total
