"""Say which ranks have no usable dump, and why: absent, empty, stale, unreadable.

A stale dump is of an earlier time: its newest record is older than those of the other ranks by more than
`policy.STALE_S` (or the longest timeout that the dumps state). Or it is of an earlier run: it says that other
ranks belong to the default group than most dumps say. It is judged as if it were absent."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.groups import DEFAULT
from controlplane.analysis.flight_records.records import Gap, MissingDump

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.analysis.flight_records.records import FlightDump


def without_stale(dumps: Sequence[FlightDump]) -> tuple[list[FlightDump], list[MissingDump]]:
    """The dumps of this run, and the ranks whose dumps are not."""
    stale = {**_of_another_run(dumps), **_too_old(dumps)}
    missing = [MissingDump(rank, Gap.STALE, reason) for rank, reason in sorted(stale.items())]
    return [dump for dump in dumps if dump.rank not in stale], missing


def _too_old(dumps: Sequence[FlightDump]) -> dict[int, str]:
    """Ranks whose newest record is too old; too new, where it is a single dump against older ones."""
    dated = sorted((dump for dump in dumps if dump.newest_ns), key=lambda each: (each.newest_ns, each.rank))
    longest_ms = max((each.timeout_ms for dump in dated for each in dump.entries), default=0)
    limit_s = max(policy.STALE_S, longest_ms / 1e3)
    runs: list[list[FlightDump]] = []
    for dump in dated:
        if runs and dump.newest_ns - runs[-1][-1].newest_ns <= limit_s * 1e9:
            runs[-1].append(dump)
        else:
            runs.append([dump])
    if len(runs) < 2:
        return {}
    now = runs[-2] if len(runs[-1]) == 1 and len(runs[-2]) > 1 else runs[-1]
    found = {}
    for run in runs:
        for dump in run if run is not now else ():
            apart_s = (now[-1].newest_ns - dump.newest_ns) / 1e9
            how = "older" if apart_s > 0 else "newer"
            found[dump.rank] = (
                f"its newest record is {abs(apart_s):.0f} s {how} than those of the other ranks "
                f"(more than {limit_s:.0f} s): it is of another run, or its clock is wrong"
            )
    return found


def _of_another_run(dumps: Sequence[FlightDump]) -> dict[int, str]:
    """Ranks whose default group is another one than that of most dumps."""
    worlds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for dump in dumps:
        for group in dump.groups:
            if group.description == DEFAULT and group.ranks:
                worlds[tuple(sorted(group.ranks))].append(dump.rank)
    if len(worlds) < 2:
        return {}
    counts = Counter({world: len(ranks) for world, ranks in worlds.items()})
    (usual, most), (_, next_most) = counts.most_common(2)
    if most == next_most:
        return {}
    return {
        rank: f"it is of a run of {len(world)} ranks, most dumps are of one of {len(usual)}"
        for world, ranks in worlds.items()
        if world != usual
        for rank in ranks
    }


def empty(dumps: Iterable[FlightDump]) -> list[MissingDump]:
    """The ranks whose dumps have no entries. What torch's counters say of them is used all the same."""
    return [
        MissingDump(
            dump.rank,
            Gap.EMPTY,
            f"{dump.file} has no entries: "
            + ("torch's counters are all that is known of it" if dump.counters else "nothing is known of it"),
        )
        for dump in dumps
        if not dump.entries
    ]


def absent(world: Iterable[int], known: Iterable[int]) -> list[MissingDump]:
    """The ranks that belong to a group, and of which there is no file."""
    there = frozenset(known)
    return [
        MissingDump(
            rank, Gap.ABSENT, "it belongs to a group of other ranks' dumps, and there is no file of it"
        )
        for rank in world
        if rank not in there
    ]
