"""Remember what the newest windows of one generation have shown, per rank and of the whole job."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import Rows, SpacedSamples, low_median, mean_of_rows, median_of_rows
from controlplane.analysis.live.lasting.levels import LevelHistory
from controlplane.analysis.live.readings import OWN, PHASES
from controlplane.analysis.live.resources.checkpoint_times import CheckpointTimes
from controlplane.analysis.live.resources.cpu_waits import cpu_waits
from controlplane.analysis.live.resources.disk_space import DiskMemory
from controlplane.analysis.live.resources.hit_places import HitPlaces
from controlplane.analysis.live.resources.step_growth import StepGrowth
from controlplane.analysis.live.resources.storage import StorageMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.analysis.live.lasting.standings import LastingWork
    from controlplane.analysis.live.readings import NodeSigns
    from controlplane.analysis.live.table import RankTable, Seats
    from controlplane.analysis.robust import Floats

SPENT = (*PHASES, "cpu", "tokens", "samples", "queued")
"""What is kept per step: s of each phase and of CPU time, tokens, samples, s of own work in which a CPU was
waited for (NaN: not known)."""


@dataclass(frozen=True, slots=True)
class TypicalRow:
    """The job's typical rank in one row, per step."""

    first_step: int
    last_step: int
    began_s: float
    ended_s: float
    step_s: float
    own_s: float
    spent: dict[str, float]
    excess_s: float  # the busiest rank is busy so much longer than a typical one of its stage, or waits so
    # much longer for samples or snapshots than a typical one of the job
    transfer_s: float  # communication of the rank that waits least
    stages_s: tuple[float, ...]  # own work of each stage's typical rank; NaN: not judged
    ranks: int  # of how many ranks it is
    queued_s: float  # the rank that waits for a CPU longest; NaN: not known
    copied_late_s: float = 0.0  # snapshots hold one rank up so much longer than a typical one
    measured: int = 1  # of how many steps of a typical rank the division into phases was measured


class Usual:
    """What is usual, of one number or of many: the first judged rows say, and later ones move it slowly."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.value: Floats = np.full(shape, np.nan)

    def add(self, level: Floats, rows: int = 1) -> None:
        """Take in the present level, that of so many rows. Down it follows ten times as fast: a first time
        may have been slow."""
        drift = rows * policy.DRIFT
        moved = self.value + np.clip(level - self.value, -10.0 * drift, drift)
        known = ~np.isnan(self.value)
        self.value = np.where(known, np.where(np.isnan(level), self.value, moved), level)


class Memory:
    """Everything remembered of a generation. Its size does not grow with time."""

    def __init__(self, ranks: int) -> None:
        kept = policy.REMEMBERED
        self.ratio = Rows(kept, ranks)  # own work (waits for a CPU left out) to peers, a logarithm
        self.own = Rows(policy.RECENT, ranks)  # own work, a logarithm of s per step
        self.aligned = Rows(policy.RECENT, ranks)  # as `ratio`, of ranks that report just the same steps
        self.change = Rows(kept, ranks)  # own work to the rank's own usual, less that of the job
        self.data = Rows(kept, ranks)  # waits longer than the others, as a share of a step
        self.snapshot = Rows(kept, ranks)
        self.queued = Rows(policy.HIT_ROWS, ranks)  # waits for a CPU in own work, as a share of a step
        self.throttled = Rows(policy.HIT_ROWS, ranks)  # of that, because of a quota
        self.hit = {"cpu_throttled": HitPlaces(), "crowded_cpu": HitPlaces()}
        self.spent = Rows(policy.RECENT, len(SPENT), ranks)
        self.lasting = {name: LevelHistory(ranks) for name in ("ratio", "own", "data")}
        self.lasting_work: tuple[int, Seats, LastingWork] | None = None  # of how many blocks, and of whom
        self.usual_own = Usual((ranks,))
        self.usual_spent = Usual((len(SPENT), ranks))  # logarithms, of blocks of RECENT rows
        self._ready = np.full(ranks, np.nan)  # which share of its own work a rank usually was ready to run in
        self.usual_step = Usual()
        self.usual_transfer = Usual()  # a logarithm of s
        self.memory = SpacedSamples(policy.LEAK_SAMPLES, ranks)
        self.storage = StorageMemory()
        self.checkpoints = CheckpointTimes()
        self.pace = StepGrowth()
        self.disks = DiskMemory()
        self.nodes: tuple[NodeSigns, ...] = ()  # as of the newest window
        self.jobs: deque[TypicalRow] = deque(maxlen=policy.JOB_ROWS)
        # The newest in which a step took about what is usual, however long ago that was.
        self.usual_jobs: deque[TypicalRow] = deque(maxlen=policy.REMEMBERED)
        self.votes: dict[str, Counter[str]] = {}  # who -> how often which cause was seen
        self._known: dict[int, deque[int]] = {}  # stage -> of how many ranks the newest rows are
        self.rows = 0  # those of the warm-up included

    def add(self, table: RankTable, began_s: float, ended_s: float) -> None:
        """Take in one row: the table of one or several windows in which most ranks completed a step."""
        self.rows += 1
        if self.rows <= policy.WARM_UP:
            return
        values, seats = table.values, table.seats
        with np.errstate(all="ignore"):
            per_step = {name: values[f"{name}_s"] / values["steps"] for name in (*PHASES, "cpu", "wall")}
            own_s = np.sum([per_step[name] for name in OWN], axis=0)
            waits = cpu_waits(table, per_step, own_s, self._ready)
            log_own = np.log(np.maximum(waits.fair(own_s), LEAST_S))
            tokens = np.where(values["tokens"] > 0, values["tokens"], np.nan) / values["steps"]
            samples = np.where(values["samples"] > 0, values["samples"], np.nan) / values["steps"]
        spent = np.array([*(per_step[name] for name in (*PHASES, "cpu")), tokens, samples, waits.queued_s])
        self.spent.add(spent)
        ratio = np.full(len(log_own), np.nan)
        busy_s = own_s + per_step["data"] + per_step["snapshot"]
        stages, excess_s = [], max(_late_s(per_step["data"]), _late_s(per_step["snapshot"]))
        for index, (_, ranks) in enumerate(seats.stages):
            excess_s = max(excess_s, _most(busy_s[ranks]) - low_median(busy_s[ranks]))
            against, usual_s = _against(own_s[ranks], waits.queued_s[ranks])
            stages.append(usual_s)
            if self._has_peers(index, own_s[ranks]):
                ratio[ranks] = against
        self.ratio.add(ratio)
        self.aligned.add(_aligned(table, log_own))
        self.own.add(log_own)
        self._changed()
        step_s = low_median(per_step["wall"])
        for name, rows in (("data", self.data), ("snapshot", self.snapshot)):
            rows.add((per_step[name] - low_median(per_step[name])) / step_s)
        self.queued.add(waits.queued_s / step_s)
        self.throttled.add(waits.throttled_s / step_s)
        last = int(np.nanmedian(values["last_step"])) if np.isfinite(values["last_step"]).any() else -1
        first = self.jobs[-1].last_step + 1 if self.jobs else last - _steps(values["steps"]) + 1
        typical = {name: low_median(column) for name, column in zip(SPENT, spent, strict=True)}
        self.jobs.append(
            TypicalRow(
                first,
                last,
                began_s,
                ended_s,
                step_s,
                low_median(own_s),
                typical,
                excess_s,
                _least(per_step["communication"]),
                tuple(stages),
                int((~np.isnan(own_s)).sum()),
                _most(waits.queued_s, math.nan),
                _late_s(per_step["snapshot"]),
                self._measured(values),
            )
        )
        self._usual()
        if self.ratio.count % policy.RECENT == 0:
            for name, rows in (("ratio", self.ratio), ("own", self.own), ("data", self.data)):
                self.lasting[name].add(rows.newest(policy.RECENT), ended_s, last)
            self._usual_block()
        self.memory.add(ended_s, last, np.where(values["memory_bytes"] > 0, values["memory_bytes"], np.nan))

    def _measured(self, values: Mapping[str, Floats]) -> int:
        """Of how many steps of a typical rank the division was measured. A row without one is divided like
        those before it; where hooks tell nothing at all, each step counts."""
        before = self.jobs[-1].measured if self.jobs else _steps(values["steps"])
        return max(1, _steps(values["covered"]) or before)

    def _has_peers(self, stage: int, own_s: Floats) -> bool:
        """Whether this row compares the ranks of a stage: not one alone whose peers tell something in other
        rows, since it would be as fast as itself."""
        known = self._known.setdefault(stage, deque(maxlen=policy.RECENT))
        known.append(int((~np.isnan(own_s)).sum()))
        return known[-1] > 1 or max(known) == known[-1]

    def _changed(self) -> None:
        """Compare the newest own work with the usual one, before that moves.

        Whoever stays as it was while the job becomes faster has not become slow."""
        change = self.own.newest(1)[0] - self.usual_own.value
        self.change.add(np.minimum(change, change - low_median(change)))

    def _usual_block(self) -> None:
        """Take the newest block into what ranks usually spend."""
        block = np.maximum(mean_of_rows(self.spent.newest(policy.RECENT)), LEAST_S)
        self.usual_spent.add(np.log(block), policy.RECENT)
        usual = dict(zip(SPENT, np.exp(self.usual_spent.value), strict=True))
        own_s = np.sum([usual[name] for name in OWN], axis=0)
        self._ready = (usual["cpu"] + np.nan_to_num(usual["queued"])) / own_s

    def _usual(self) -> None:
        row = self.jobs[-1]
        self.pace.take(row.ended_s, row.step_s, row.spent)
        if len(self.jobs) < policy.RECENT:
            return
        level, _ = median_of_rows(self.own.newest(policy.RECENT))
        self.usual_own.add(level)
        steps_s = np.array([row.step_s for row in list(self.jobs)[-policy.RECENT :]])
        if np.isfinite(steps_s).any():
            self.usual_step.add(np.log(np.nanmedian(steps_s)))
        newest = self.jobs[-1]
        if math.log(max(newest.step_s, LEAST_S)) - self.usual_step.value < policy.half(policy.SLOWED_RATIO):
            self.usual_jobs.append(newest)
        transfers_s = np.array([row.transfer_s for row in list(self.jobs)[-policy.RECENT :]])
        self.usual_transfer.add(np.log(np.maximum(np.median(transfers_s), LEAST_S)))


LEAST_S = 1e-6
"""Own work that seems shorter counts as this long (s), so that it has a logarithm."""


def _against(own_s: Floats, queued_s: Floats) -> tuple[Floats, float]:
    """The logarithm of each rank's own work to that of a typical one, and the latter (s), without the waits
    for a CPU. Ranks whose waits are not known are compared with all, waits included: like with like."""
    counted = ~np.isnan(queued_s)
    log_raw = np.log(np.maximum(own_s, LEAST_S))
    if not counted.any():
        usual = low_median(log_raw)
        return log_raw - usual, float(np.exp(usual))
    fair = np.log(np.maximum(own_s - np.nan_to_num(queued_s), LEAST_S))
    usual = low_median(fair[counted])
    return np.where(counted, fair - usual, log_raw - low_median(log_raw)), float(np.exp(usual))


def _aligned(table: RankTable, log_own: Floats) -> Floats:
    """The logarithm of own work to that of a typical rank of the stage, among ranks that report the same
    steps as most do; NaN for others: sums over other steps differ although nobody's work is uneven."""
    values = table.values
    same = np.ones(len(log_own), dtype=bool)
    for name in ("last_step", "steps"):
        known = values[name][same & ~np.isnan(values[name])]
        if known.size:
            found, counts = np.unique(known, return_counts=True)
            same &= values[name] == found[np.argmax(counts)]
    kept = np.where(same, log_own, np.nan)
    for _, ranks in table.seats.stages:
        kept[ranks] -= low_median(kept[ranks])
    return kept


def _most(values: Floats, unknown: float = 0.0) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else unknown


def _late_s(waited_s: Floats) -> float:
    """How much longer than a typical rank the one waits that waits longest, whatever its stage."""
    typical_s = low_median(waited_s)
    return 0.0 if math.isnan(typical_s) else _most(waited_s) - typical_s


def _least(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.min()) if known.size else 0.0


def _steps(steps: Floats) -> int:
    known = steps[~np.isnan(steps)]
    return int(np.median(known)) if known.size else 0
