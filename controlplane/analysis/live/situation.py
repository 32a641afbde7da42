"""Give detectors what they judge by: how ranks stand against peers and against themselves, and the job.

Everything here is computed when a detector first asks for it, over columns of all ranks; what a single rank
does in detail is looked at only for suspects."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median, mean_of_rows, median_of_rows
from controlplane.analysis.live.lasting.standings import LastingWork, lasting_limit, lasting_work
from controlplane.analysis.live.numbers import NumberMemory
from controlplane.analysis.live.resources.memory import SPENT
from controlplane.analysis.live.standing import Standing, standing
from controlplane.analysis.live.transfers import TransferTime, transfer
from controlplane.analysis.robust import NORMAL

if TYPE_CHECKING:
    from controlplane.analysis.links.measures import LinkMatrix
    from controlplane.analysis.live.resources.memory import Memory, TypicalRow
    from controlplane.analysis.live.table import Bools, Ints, RankTable, Seats
    from controlplane.analysis.robust import Floats
    from controlplane.core.records.diagnosis import Thresholds
    from controlplane.core.state.findings import Finding


class LiveSituation:
    """What detectors see. `found`: what those before have found; the order of detectors is their table's."""

    def __init__(
        self,
        memory: Memory,
        table: RankTable,
        thresholds: Thresholds,
        links: LinkMatrix | None = None,
        numbers: NumberMemory | None = None,
    ) -> None:
        self.memory = memory
        self.numbers = numbers or NumberMemory()
        self.table = table
        self.thresholds = thresholds
        self.links = links
        self.found: list[Finding] = []

    @property
    def seats(self) -> Seats:
        """Who is which rank, and where."""
        return self.table.seats

    @property
    def job(self) -> TypicalRow:
        """The newest row of the whole job."""
        return self.memory.jobs[-1]

    @cached_property
    def judged(self) -> Ints:
        """The ranks that can be judged: those with enough rows."""
        return np.flatnonzero(~np.isnan(self.against_peers.level))

    @cached_property
    def step_s(self) -> float:
        """How long a step takes at present (s): the median of the newest rows."""
        return float(np.median([row.step_s for row in self.newest]))

    @property
    def newest(self) -> list[TypicalRow]:
        """The job's newest rows, those by which ranks are judged."""
        return list(self.memory.jobs)[-policy.RECENT :]

    @cached_property
    def against_peers(self) -> Standing:
        """The logarithm of each rank's own work to that of a typical rank of its stage."""
        rows, noise = self.memory.ratio.newest(policy.RECENT), self.memory.lasting["ratio"].noise
        return standing(rows, math.log(self.thresholds.slow_ratio), noise)

    @cached_property
    def against_itself(self) -> Standing:
        """The logarithm of each rank's own work to its own usual, less what the whole job has changed by."""
        return standing(self.memory.change.newest(policy.RECENT), math.log(policy.CHANGE_RATIO))

    @cached_property
    def lasting_work(self) -> LastingWork | None:
        """How the work of ranks has stood for minutes; None: not known yet."""
        memory, limit = self.memory, lasting_limit(self.thresholds.slow_ratio)
        ratio, own = memory.lasting["ratio"], memory.lasting["own"]
        if not ratio.full:
            return None
        blocks, kept = ratio.blocks.count, memory.lasting_work
        if kept is None or kept[0] != blocks or kept[1] is not self.seats:
            kept = blocks, self.seats, lasting_work(self.seats, ratio, own, limit)
            memory.lasting_work = kept
        return kept[2].now(self.against_peers.level, self.against_itself.level)

    @cached_property
    def spent(self) -> dict[str, Floats]:
        """What each rank spends per step, as the mean of the newest rows (`memory.SPENT`). NaN: not known."""
        return dict(zip(SPENT, mean_of_rows(self.memory.spent.newest(policy.RECENT)), strict=True))

    @cached_property
    def counted(self) -> Bools:
        """Ranks of which it is known for how long they waited for a CPU."""
        return ~np.isnan(self.spent["queued"])

    def work_s(self, *phases: str) -> Floats:
        """What each rank spends per step in these phases (s), without the waits for a CPU where these are
        known."""
        found: Floats = sum((self.spent[name] for name in phases), np.zeros(1))
        return np.maximum(found - np.nan_to_num(self.spent["queued"]), 0.0)

    def usual(self, column: Floats) -> Floats:
        """For each rank, what a typical rank of its stage has in this column."""
        found = np.full(len(column), np.nan)
        for _, ranks in self.seats.stages:
            found[ranks] = low_median(column[ranks])
        return found

    @cached_property
    def transfer(self) -> TransferTime:
        """What the job's communication takes, and whether its links are suspected for it."""
        return transfer(self.memory, self.step_s, self.jitter_s, self.thresholds.communication)

    @cached_property
    def step_spread(self) -> float:
        """By how much the work of a rank differs from step to step (a logarithm), as a standard deviation.

        Rows in which n steps were measured scatter less than single steps, by the square root of n: the
        others are divided like these."""
        rows = self.memory.aligned.newest(policy.RECENT)
        level, _ = median_of_rows(rows)
        apart = np.abs(rows - level.astype(np.float32))
        apart = apart[~np.isnan(apart)]
        steps = float(np.median([row.measured for row in self.newest]))
        return float(NORMAL * np.median(apart)) * math.sqrt(steps) if apart.size else 0.0

    @cached_property
    def jitter_s(self) -> float:
        """How much longer (s) the slowest of all ranks works in a step than it does on average: of n values
        that scatter normally, the greatest lies about sqrt(2 ln n) standard deviations above."""
        ranks = max(2, len(self.judged))
        return self.job.own_s * self.step_spread * math.sqrt(2.0 * math.log(ranks))

    @cached_property
    def usual_backward_s(self) -> float:
        """How long the backward pass of a typical rank takes per step (s)."""
        return low_median(self.spent["backward"])

    @cached_property
    def usual_spent(self) -> dict[str, Floats]:
        """For each rank, what a typical rank of its stage spends per step, as `spent`."""
        return {name: self.usual(column) for name, column in self.spent.items()}

    @cached_property
    def spent_before(self) -> dict[str, Floats]:
        """What each rank usually spent per step, as `spent`: its own past. NaN: not known yet."""
        return dict(zip(SPENT, np.exp(self.memory.usual_spent.value), strict=True))
