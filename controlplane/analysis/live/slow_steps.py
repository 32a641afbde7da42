"""Keep the phases of a job's newest slow steps, rank by rank, in memory that does not grow. Pure.

Each rank says itself which of its steps were slow, so a step may lack ranks for which it was just not. The
oldest step goes when there are more than STEPS_MAX, or more rows of ranks than ROWS_MAX."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.analysis.live.readings import OWN, PHASES

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import JobWindow

STEPS_MAX = 50
ROWS_MAX = 20_000
"""Rows of ranks over all steps of a job: one step of a job of 20,000 ranks."""
ROW_BYTES = 400
"""What a row takes at most: all rows together 8 MB."""


@dataclass(slots=True)
class _Step:
    seen_s: float  # Unix time: the end of the window that brought it
    ranks: int  # of the job then
    usual_s: float
    rows: dict[int, tuple[str, array[float]]] = field(default_factory=dict)  # by rank: node, wall and phases

    @property
    def wall_s(self) -> float:
        """How long it took on the rank for which it was longest."""
        return max(numbers[0] for _, numbers in self.rows.values())


class SlowStepMemory:
    """The slow steps of one job, over its generations."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int], _Step] = {}  # by generation and step, oldest first
        self._rows = self._more = 0

    def take(self, window: JobWindow) -> None:
        """Take in what the ranks of a window say."""
        self._more += window.slow_more
        for row in window.slow:
            key = (row.generation, row.step)
            found = self._steps.get(key)
            if found is None:
                found = self._steps[key] = _Step(window.ended_s, window.ranks_expected, row.usual_s)
            if row.rank not in found.rows:
                found.rows[row.rank] = row.node, array("d", (row.wall_s, *row.phases_s))
                self._rows += 1
        while len(self._steps) > STEPS_MAX or (self._rows > ROWS_MAX and len(self._steps) > 1):
            self._rows -= len(self._steps.pop(next(iter(self._steps))).rows)

    def rows(self) -> dict[str, Any]:
        """The steps as plain data, the newest first. `more`: rows of ranks that nobody kept, since their slow
        steps followed each other too closely."""
        steps = [_head(key, step) for key, step in reversed(self._steps.items())]
        return {"steps": steps, "more": self._more}

    def step(self, generation: int, step: int, rows_most: int) -> dict[str, Any] | None:
        """One step with the slowest rank, a typical one, and `rows_most` whose own work differs most from
        its; None: it is not kept (any more).

        The ranks have the fields of a diagnosis' ranks, so that they are shown like them."""
        found = self._steps.get((generation, step))
        if found is None:
            return None
        busy_s = {rank: _busy(numbers) for rank, (_, numbers) in found.rows.items()}
        order = sorted(busy_s, key=lambda rank: (busy_s[rank], rank))
        typical, slowest = order[(len(order) - 1) // 2], order[-1]
        usual_s = _own(found.rows[typical][1])
        far = sorted(order, key=lambda rank: -abs(_own(found.rows[rank][1]) - usual_s))
        chosen = sorted({slowest, typical, *far[:rows_most]})
        return _head((generation, step), found) | {
            "ranks": [_rank(rank, *found.rows[rank], usual_s) for rank in chosen],
            "typical_rank": typical,
            "slowest_rank": slowest,
            "columns": {"ranks": sorted(found.rows)},
        }


def _head(key: tuple[int, int], found: _Step) -> dict[str, Any]:
    return {
        "generation": key[0],
        "step": key[1],
        "seen_s": found.seen_s,
        "wall_s": found.wall_s,
        "usual_s": found.usual_s,
        "ranks_known": len(found.rows),
        "ranks_expected": found.ranks,
    }


def _rank(rank: int, node: str, numbers: array[float], usual_s: float) -> dict[str, Any]:
    wall_s, own_s = numbers[0], _own(numbers)
    return {
        "rank": rank,
        "node": node,
        "step_s": wall_s,
        "own_s": own_s,
        "ratio": own_s / usual_s if usual_s > 0 else 1.0,
        "shares": {name: spent_s / wall_s for name, spent_s in zip(PHASES, numbers[1:], strict=True)},
    }


def _busy(numbers: array[float]) -> float:
    """What a rank did not wait for other ranks."""
    return numbers[0] - numbers[1 + PHASES.index("communication")]


def _own(numbers: array[float]) -> float:
    return sum(numbers[1 + PHASES.index(name)] for name in OWN)
