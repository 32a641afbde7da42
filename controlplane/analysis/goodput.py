"""Account for node-time: how much was kept, what the rest was lost to, what a fixed size would keep. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = "kept"
"""The cause under which node-time is booked whose progress was kept."""

CAUSES = {
    "down": "nodes that were down",
    "start": "the job's first start",
    "detect": "a failure not noticed yet",
    "decide": "noticed, and not acted upon yet",
    "stop": "survivors come to the barrier, replacements start",
    "store": "the new generation goes into etcd",
    "reform": "process groups are built again",
    "restore": "state is put in place",
    "resize": "planned changes of size, at a step boundary",
    "lost_steps": "training done again, or not kept",
    "stalls": "training waits for copies of its state",
    "waiting": "too few nodes: everybody waits",
    "idle_layout": "nodes that do not make up a whole replica",
    "idle_spare": "spares that wait",
    "joining": "nodes that are well, and not in the job yet",
}
"""What node-time is lost to -> in words for people."""


@dataclass(slots=True)
class NodeTimeLedger:
    """Node-seconds by cause."""

    bin_s: float  # width of a bin of time
    total: dict[str, float] = field(default_factory=dict)  # of all the time
    bins: list[dict[str, float]] = field(default_factory=list)  # of each bin of time

    def add(self, cause: str, begin_s: float, end_s: float, nodes: float) -> None:
        """Book the span `begin_s` to `end_s` of so many `nodes` to `cause`; negative nodes take it back.

        Raises ValueError for an unknown cause."""
        if end_s <= begin_s or nodes == 0:
            return
        if cause != KEPT and cause not in CAUSES:
            raise ValueError(f"{cause!r} is no cause: known are {', '.join(CAUSES)}")
        self.total[cause] = self.total.get(cause, 0.0) + nodes * (end_s - begin_s)
        index = int(begin_s // self.bin_s)
        while begin_s < end_s:
            until = min(end_s, (index + 1) * self.bin_s)
            while len(self.bins) <= index:
                self.bins.append({})
            here = self.bins[index]
            here[cause] = here.get(cause, 0.0) + nodes * (until - begin_s)
            begin_s, index = until, index + 1

    def ratio(self, cause: str) -> float:
        """Return the share of all node-time that was booked to `cause`; 0 while nothing is booked."""
        whole = sum(self.total.values())
        return self.total.get(cause, 0.0) / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """What a job of a fixed size would have made of the same failures."""

    nodes: int  # its size; 0: no size would have made progress
    goodput: float  # share of all node-time whose progress it would have kept


def ceiling(steps: Sequence[tuple[float, int]], nodes: int, end_s: float) -> float:
    """Return the share of all node-time in which nodes were up. `steps`: (s, nodes down from then on)."""
    down_s = sum(down * (until - at) for at, until, down in _spans(steps, end_s))
    return 1.0 - down_s / (nodes * end_s)


def best_fixed(
    steps: Sequence[tuple[float, int]], nodes: int, end_s: float, unit: int = 1, recovery_s: float = 0.0
) -> Fixed:
    """Return the fixed size, a multiple of `unit`, with the greatest goodput for the same failures.

    It runs whenever so many nodes are up, on any of them, and pays `recovery_s` for each of its own nodes
    that fails. Failures hit its nodes in proportion to its size, and to the time in which it runs."""
    at_least: dict[int, float] = {}
    for at, until, down in _spans(steps, end_s):
        at_least[nodes - down] = at_least.get(nodes - down, 0.0) + until - at
    falls = sum(max(0, b - a) for (_, a), (_, b) in itertools.pairwise(steps))
    best = Fixed(0, 0.0)
    for size in range(unit, nodes + 1, unit):
        runs_s = sum(span for up, span in at_least.items() if up >= size)
        runs_s -= recovery_s * falls * size / nodes * (runs_s / end_s)
        best = max(best, Fixed(size, size / nodes * max(0.0, runs_s) / end_s), key=lambda each: each.goodput)
    return best


def _spans(steps: Sequence[tuple[float, int]], end_s: float) -> list[tuple[float, float, int]]:
    ends = [at for at, _ in steps[1:]] + [end_s]
    return [(at, min(until, end_s), down) for (at, down), until in zip(steps, ends, strict=True)]
