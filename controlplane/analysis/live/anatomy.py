"""Show where each rank's step goes, and what the slowest ranks cost.

In a synchronous job every step waits for the rank that is busy longest. With b the time in which a rank
neither waits for others nor (by this) makes them wait: T is the mean step, U the median over stages of what
their typical rank is busy, and T_ideal = T - (max b - U). The slowdown is T / T_ideal. A part's share of the
loss is (max b - max b without that part's excess over U) / (max b - U). These are the words of the diagnosis
of timelines; its replay (`analysis/steps/what_if.py`) is not used, since it needs single operations and their
dependencies, and a window has only sums. Sums hide that another rank may be the slowest in each step, so the
loss is at least what is said here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live.eta import NO_PACE, WindowPace
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.readings import OWN, PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.table import Bools, Ints, RankTable
    from controlplane.analysis.robust import Floats

BUSY = (*OWN, "data", "snapshot")


@dataclass(frozen=True, slots=True)
class RankAnatomy:
    """Where one rank's step goes. `shares`: of its step, by phase; they add up to about 1."""

    rank: int
    member: str
    node: str
    step_s: float
    own_s: float
    ratio: float  # of `own_s` to the typical rank of its stage in this window
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class AnatomyColumns:
    """The own work of all ranks that were judged, as columns of one length, for those who show many ranks.

    Numbers are rounded, to microseconds and thousandths: so many of them are short as text."""

    ranks: list[int]
    nodes: list[int]  # indices into `node_names`
    node_names: list[str]
    own_s: list[float]
    ratios: list[float]  # as in `RankAnatomy`


class Anatomy:
    """Where the steps of all ranks go in one window. Rows are made when they are asked for."""

    def __init__(self, table: RankTable) -> None:
        self._seats = table.seats
        values = table.values
        with np.errstate(all="ignore"):
            self._phases = {name: values[f"{name}_s"] / values["steps"] for name in PHASES}
            self._step_s = values["wall_s"] / values["steps"]
        self._own_s: Floats = np.sum([self._phases[name] for name in OWN], axis=0)
        usual_s = np.full(len(self._own_s), np.nan)
        for _, ranks in table.seats.stages:
            usual_s[ranks] = low_median(self._own_s[ranks])
        self._ratio = np.divide(self._own_s, usual_s, out=np.ones_like(usual_s), where=usual_s > 0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that were judged, in order."""
        return tuple(map(int, np.flatnonzero(~np.isnan(self._own_s))))

    @property
    def typical_rank(self) -> int | None:
        """The rank that is busy for the (lower) median of the time; None with no rank."""
        ranks, busy_s = self._busy()
        middle = (len(ranks) - 1) // 2
        return int(ranks[np.argpartition(busy_s, middle)[middle]]) if len(ranks) else None

    @property
    def slowest_rank(self) -> int | None:
        """The rank that is busy longest, for which the others wait; None with no rank."""
        ranks, busy_s = self._busy()
        return int(ranks[np.argmax(busy_s)]) if len(ranks) else None

    def _busy(self) -> tuple[Ints, Floats]:
        """The ranks that were judged, and how long each is busy in a step."""
        ranks = np.flatnonzero(~np.isnan(self._own_s))
        return ranks, np.sum([self._phases[name][ranks] for name in BUSY], axis=0)

    def columns(self) -> AnatomyColumns:
        """All ranks that were judged, in order."""
        ranks = np.flatnonzero(~np.isnan(self._own_s))
        places = self._seats.node[ranks]
        used, nodes = np.unique(places, return_inverse=True)
        return AnatomyColumns(
            ranks.tolist(),
            nodes.tolist(),
            [self._seats.nodes[place] if place >= 0 else "" for place in used],
            np.round(self._own_s[ranks], 6).tolist(),
            np.round(self._ratio[ranks], 3).tolist(),
        )

    def furthest(self, most: int) -> tuple[int, ...]:
        """The ranks whose own work differs most from that of their peers, `most` at most, in order."""
        ranks = np.flatnonzero(~np.isnan(self._own_s))
        order = np.argsort(-np.abs(self._ratio[ranks] - 1.0), kind="stable")
        return tuple(sorted(map(int, ranks[order[:most]])))

    def row(self, rank: int) -> RankAnatomy:
        """One rank that was judged. Raises KeyError for any other."""
        if not 0 <= rank < len(self._own_s) or np.isnan(self._own_s[rank]):
            raise KeyError(f"rank {rank} was not judged in this window")
        step_s = float(self._step_s[rank])
        return RankAnatomy(
            rank,
            self._seats.member[rank],
            self._seats.node_of(rank),
            step_s,
            float(self._own_s[rank]),
            float(self._ratio[rank]),
            {name: float(column[rank]) / step_s for name, column in self._phases.items()},
        )

    def rows(self) -> Iterator[RankAnatomy]:
        """Every rank that was judged, in order."""
        return map(self.row, self.ranks)

    def shares(self) -> dict[str, float]:
        """Where the step of a typical rank goes: the median of each phase's share; {} with no rank."""
        if not self.ranks:
            return {}
        with np.errstate(all="ignore"):
            return {name: low_median(column / self._step_s) for name, column in self._phases.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """What the slowest ranks cost in one window. A share is None where there is no loss to share."""

    step_s: float  # T
    ideal_step_s: float
    steps: float  # of a typical rank in this window
    worst_rank: int | None = None
    worst_rank_share: float | None = None
    worst_node: str = ""
    worst_node_share: float | None = None
    last_stage_share: float | None = None

    @property
    def slowdown(self) -> float:
        """T / T_ideal; 1 when nothing takes any time; NaN: not known."""
        return 1.0 if self.ideal_step_s <= 0 else self.step_s / self.ideal_step_s

    @property
    def loss_s(self) -> float:
        """What all steps of the window took more than the ideal, in s."""
        return (self.step_s - self.ideal_step_s) * self.steps


NOTHING_LOST = Loss(0.0, 0.0, 0.0)
UNKNOWN_LOSS = Loss(math.nan, math.nan, math.nan)
LEAST_RATIO = 1e-3
"""Below this share of a step a loss is not shared out."""


def loss(table: RankTable) -> Loss:
    """What this window's slowest ranks cost."""
    values, seats = table.values, table.seats
    with np.errstate(all="ignore"):
        busy_s = np.sum([values[f"{name}_s"] for name in BUSY], axis=0) / values["steps"]
        step_s = low_median(values["wall_s"] / values["steps"])
    judged = ~np.isnan(busy_s)
    if not judged.any():
        return NOTHING_LOST
    typical = [low_median(busy_s[ranks]) for _, ranks in seats.stages]
    usual_s = low_median(np.array(typical))
    excess_s = np.where(judged, np.maximum(0.0, busy_s - usual_s), 0.0)
    most_s = min(float(excess_s.max()), step_s)
    steps = low_median(values["steps"])
    worst = int(excess_s.argmax())
    if most_s < LEAST_RATIO * step_s:
        return Loss(step_s, step_s - most_s, steps)

    def share(corrected: Bools) -> float:
        return 1.0 - min(most_s, float(np.where(corrected, 0.0, excess_s).max())) / most_s

    ranks = np.arange(len(excess_s))
    last = seats.stage == seats.stages[-1][0] if len(seats.stages) > 1 else np.zeros(len(ranks), dtype=bool)
    return Loss(
        step_s,
        step_s - most_s,
        steps,
        worst,
        share(ranks == worst),
        seats.node_of(worst),
        share(seats.node == seats.node[worst]),
        share(last) if len(seats.stages) > 1 else None,
    )


def window_pace(table: RankTable) -> WindowPace:
    """The pace in the window of this table; NO_PACE if no rank has completed a step in it."""
    values = table.values
    steps = low_median(values["steps"])
    if not steps > 0:
        return NO_PACE
    declared_s = values["evaluate_s"] + values["checkpoint_s"]
    with np.errstate(all="ignore"):
        step_s = low_median((values["wall_s"] - values["compile_s"] - declared_s) / values["steps"])
    return WindowPace(
        int(low_median(values["last_step"])) + 1, steps, max(0.0, step_s), low_median(declared_s)
    )
