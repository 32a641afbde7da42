"""Compare two runs, one of which was killed, or without Holdfast: every bit, log line and event. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SHOWN = 4
"""The most differences of one kind that are reported."""
Ends = dict[int, dict[str, dict[str, str]]]
"""What each rank came to: part ("weights", "log", ...), name, digest."""


def parts(ends: Ends, only: Collection[str]) -> Ends:
    """Only these parts of the ends; all of them if none is named."""
    if not only:
        return ends
    return {rank: {name: part[name] for name in only if name in part} for rank, part in ends.items()}


def bits(
    first: Ends,
    second: Ends,
    runs: tuple[str, str] = ("undisturbed", "killed"),
    needed: Collection[str] = ("weights",),
) -> list[str]:
    """Where the ends of these two runs differ, by rank, part and name. `needed`: parts that must be there."""
    found = []
    for rank in sorted(first.keys() | second.keys()):
        if rank not in second or rank not in first:
            found.append(f"rank {rank} came to no end in the {runs[rank in first]} run")
            continue
        wanted, got = first[rank], second[rank]
        absent = [part for part in needed if not wanted.get(part)]
        found += [f"rank {rank}: no {part} were found to compare" for part in absent]
        for part in sorted(wanted.keys() | got.keys()):
            mine, theirs = wanted.get(part, {}), got.get(part, {})
            names = [
                name for name in sorted(mine.keys() | theirs.keys()) if mine.get(name) != theirs.get(name)
            ]
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                found.append(f"rank {rank}, {part}: {', '.join(names[:SHOWN])}{more}")
    return found


def events(
    undisturbed: Iterable[dict[str, Any]], killed: Iterable[dict[str, Any]], again: Collection[str]
) -> dict[str, Any]:
    """How often each event took effect, by rank and step, in the killed run against the undisturbed one.

    `again`: events that may be begun again; they must still not be missing. Returns {"exact", "events":
    {name: [undisturbed, killed]}, "repeated", "missing"}."""
    wanted, got = _counted(undisturbed), _counted(killed)
    repeated = sorted(key for key in got if got[key] > wanted[key] and key[0] not in again)
    missing = sorted(key for key in wanted if got[key] < wanted[key])
    names = sorted({key[0] for key in wanted | got})
    totals = {name: [_total(wanted, name), _total(got, name)] for name in names}
    return {
        "exact": not repeated and not missing and bool(wanted),
        "events": totals,
        "repeated": [_said(key) for key in repeated[:SHOWN]],
        "missing": [_said(key) for key in missing[:SHOWN]],
    }


def _counted(lines: Iterable[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    return Counter((line["event"], line["step"], line["rank"]) for line in lines)


def _total(counts: Counter[tuple[str, int, int]], name: str) -> int:
    return sum(count for key, count in counts.items() if key[0] == name)


def _said(key: tuple[str, int, int]) -> str:
    return f"{key[0]}, step {key[1]}, rank {key[2]}"
