"""Define failures, whether they come from a trace, a mix or a rate: which node, when, for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DAY_S = 86_400.0


class FailureInputError(ValueError):
    """Input that cannot be simulated; the message names the entry or flag, and the remedy."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One failure. Times since the beginning."""

    node: int  # number of the node, from 0
    start_s: float
    end_s: float  # when the node is well again; infinity: never; `start_s`: only a process died
    cause: str

    @property
    def process(self) -> bool:
        """Whether only a process died and the node stayed up."""
        return self.end_s == self.start_s


@dataclass(frozen=True, slots=True)
class Failures:
    """All failures of a run, by time. `notes`: what was odd in the source, and how it was read.

    `names`: what the source calls the first nodes, by number; empty where it has no names."""

    source: str
    outages: tuple[Outage, ...]
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def within(self, days: float) -> Failures:
        """Return the failures that begin in the first `days`."""
        kept = tuple(outage for outage in self.outages if outage.start_s < days * DAY_S)
        return Failures(self.source, kept, self.notes, self.names)


def merged(outages: Iterable[Outage]) -> tuple[tuple[Outage, ...], int]:
    """Join overlapping outages of the same node. Returns all by time, and how many were joined to another."""
    lines: dict[int, list[Outage]] = {}
    taken = 0
    for outage in sorted(outages, key=lambda each: (each.start_s, each.node, each.end_s)):
        line = lines.setdefault(outage.node, [])
        if line and outage.start_s <= line[-1].end_s and not line[-1].process:
            last = line[-1]
            line[-1] = Outage(last.node, last.start_s, max(last.end_s, outage.end_s), last.cause)
            taken += 1
        else:
            line.append(outage)
    everything = [outage for line in lines.values() for outage in line]
    return tuple(sorted(everything, key=lambda each: (each.start_s, each.node))), taken


def spans(outages: Sequence[Outage], end_s: float) -> list[tuple[float, int]]:
    """Return the number of nodes that are down over time: (s, nodes down from then on), from 0 to `end_s`."""
    changes: dict[float, int] = {0.0: 0}
    for outage in outages:
        if not outage.process and outage.start_s < end_s:
            changes[outage.start_s] = changes.get(outage.start_s, 0) + 1
            if outage.end_s < end_s:
                changes[outage.end_s] = changes.get(outage.end_s, 0) - 1
    down, steps = 0, []
    for at in sorted(changes):
        down += changes[at]
        steps.append((at, down))
    return steps
