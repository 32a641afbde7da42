"""Watch one job: take in a window after the other, and say what is wrong.

`JobWatch` is the memory, the detectors are functions over it (`situation.py` is what they see). Rows of a
window that cannot be believed are left out (`table.py`). Windows are added up until most ranks have completed
a step, so steps may last longer than windows; only then anything is judged. A new generation begins with an
empty memory: other ranks, other work.

Each part of it, detector or not, is guarded: one that raises is named in `failed_detectors`, the others go
on, and of the kinds that it looks for (`registry.KINDS`) nothing can be said to be over.

There is no clock: times are in the windows. What a diagnosis reports holds for the newest minute; when a
finding opens and when it is resolved is up to `analysis.findings_ledger`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.guarding import FailedPart, PartGuard
from controlplane.analysis.links.judging import judge
from controlplane.analysis.links.unknown import Unknown
from controlplane.analysis.live import policy
from controlplane.analysis.live.anatomy import NOTHING_LOST, UNKNOWN_LOSS, Anatomy, Loss, loss, window_pace
from controlplane.analysis.live.costs import lost_s
from controlplane.analysis.live.detectors.registry import DETECTORS, KINDS
from controlplane.analysis.live.detectors.stages import silent_stages
from controlplane.analysis.live.efficiency import FAILED as FAILED_EFFICIENCY
from controlplane.analysis.live.efficiency import Efficiency, of_window
from controlplane.analysis.live.eta import NO_PACE, WindowPace
from controlplane.analysis.live.numbers import NumberMemory
from controlplane.analysis.live.readings import NUMBERS
from controlplane.analysis.live.resources.loading import SampleWaits, sample_waits
from controlplane.analysis.live.resources.memory import Memory
from controlplane.analysis.live.resources.memory_room import MemoryRoom, memory_room
from controlplane.analysis.live.situation import LiveSituation
from controlplane.analysis.live.table import SUMS, RankTable, SeenSteps, tabulate
from controlplane.core.records.diagnosis import Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controlplane.analysis.live.numbers import NumberSummary
    from controlplane.analysis.live.readings import JobWindow, Unjudged
    from controlplane.analysis.live.table import Bools
    from controlplane.analysis.robust import Floats
    from controlplane.core.state.findings import Finding

    Detector = Callable[[LiveSituation], Iterable["Finding"]]


@dataclass(frozen=True, slots=True)
class LiveDiagnosis:
    """What a window shows. `judged`: whether detectors looked; while it is False nothing can be said, neither
    that something is wrong nor that it is well."""

    job: str
    generation: int
    began_s: float
    ended_s: float
    judged: bool
    findings: tuple[Finding, ...]  # the most expensive first; with `job`
    failed_detectors: tuple[FailedPart, ...]  # and other parts that raised
    unjudged: tuple[Unjudged, ...]  # the first of them
    left_out: Mapping[str, int]  # why rows were left out -> how many
    out: Bools  # by rank: all of whom nothing can be said: left out of this window, or of most of the newest
    nodes_seen: frozenset[str]  # nodes of which some rank was judged
    silent_stages: frozenset[int]  # stages of which too little is known to judge them
    ranks_judged: int
    anatomy: Anatomy | None  # None: it failed
    loss: Loss  # of this window
    lost_s: Mapping[str, float]  # of this window's steps, by cause (`costs`)
    efficiency: Efficiency  # in this window
    suspicion: str = ""  # why the links of the job are suspected, and should be probed; "": they are not
    links_unknown: str = ""  # why probes of suspected links name nobody; "": they do, or there are none
    links_code: str = ""  # the same in a word (`controlplane.analysis.links.unknown`)
    pace: WindowPace = NO_PACE
    numbers: NumberSummary | None = None  # losses and gradients; None: the script has none measured
    unseen: frozenset[str] = frozenset()  # kinds of findings that parts which failed look for
    samples: SampleWaits | None = None  # None: no rank is judged
    memory: MemoryRoom | None = None  # of the fullest rank; None: not known

    @property
    def slowdown(self) -> float:
        """The mean step over the ideal one."""
        return self.loss.slowdown

    @property
    def loss_s(self) -> float:
        """What the steps of this window took more than the ideal, in s."""
        return self.loss.loss_s


class JobWatch:
    """The diagnosis of one job. Windows come in order of time, from one leader."""

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        detectors: Mapping[str, Detector] | None = None,
    ) -> None:
        self._thresholds = thresholds or Thresholds()
        self._detectors = DETECTORS if detectors is None else detectors
        self._generation: int | None = None
        self._ranks = 0
        self._ended_s = float("-inf")
        self._memory = Memory(1)
        self._numbers = NumberMemory()  # over all generations: steps go on
        self._before: SeenSteps | None = None
        self._pending = _Pending()

    def observe(self, window: JobWindow) -> LiveDiagnosis:
        """Take in a window. Raises ValueError for one that cannot be: of an older generation or time than the
        one before, not forward in time, or with a number of ranks that no job has."""
        self._check(window)
        guard = PartGuard()
        guard.run("gradients", lambda: self._numbers.take(window.gradients), None)
        table = self._take(window, guard)
        situation: LiveSituation | None = None
        if self._pending.ready:
            merged, began_s = self._pending.take(table)
            self._memory.add(merged, began_s, window.ended_s)
            if len(self._memory.jobs) >= policy.LEAST:
                situation = LiveSituation(self._memory, merged, self._thresholds, window.links, self._numbers)
                self._judge(situation, guard)
        return self._said(window, table, situation, guard)

    def _take(self, window: JobWindow, guard: PartGuard) -> RankTable:
        """Remember what a window shows. Return its table."""
        new = (self._generation, self._ranks) != (window.generation, window.ranks_expected)
        table = tabulate(window, None if new else self._before)
        if new:
            self._begin(window)
        self._ended_s = window.ended_s
        self._before = SeenSteps.after(table, self._before)
        self._pending.add(table, window)
        memory = self._memory
        guard.run("storage", lambda: memory.storage.add(window.ended_s, window.storage), None)
        guard.run("checkpoints", lambda: memory.checkpoints.take(window), None)
        guard.run("disks", lambda: memory.disks.add(window.ended_s, window.disks), None)
        memory.nodes = window.nodes
        return table

    def _said(
        self, window: JobWindow, table: RankTable, situation: LiveSituation | None, guard: PartGuard
    ) -> LiveDiagnosis:
        """What the window shows. Rates and shares are computed part by part."""
        findings = () if situation is None else _sorted(situation.found, window.job)
        known = int((~np.isnan(table.values["steps"])).sum())
        anatomy = guard.run("anatomy", lambda: Anatomy(table), None)
        lost = guard.run("loss", lambda: loss(table) if known else NOTHING_LOST, UNKNOWN_LOSS)
        nothing: dict[str, float] = {}
        causes = guard.run("lost_time", lambda: lost_s(table), nothing)
        rates = guard.run("efficiency", lambda: of_window(window, table.reported), FAILED_EFFICIENCY)
        links = guard.run("links", lambda: _of_links(situation), ("", "", ""))
        pace = guard.run("pace", lambda: window_pace(table), NO_PACE)
        numbers = guard.run("numbers", lambda: self._summary(window), None)
        samples = guard.run("samples", lambda: sample_waits(table), None)
        memory = guard.run("memory", lambda: memory_room(table), None)
        out = guard.run("out", lambda: _out(table, situation), table.out)
        unknown = frozenset(stage for stage, _ in table.seats.stages)
        silent = guard.run("stages", lambda: silent_stages(situation) if situation else unknown, unknown)
        return LiveDiagnosis(
            window.job, window.generation, window.began_s, window.ended_s, situation is not None, findings,
            tuple(guard.failed), table.unjudged, table.left_out, out, _nodes_seen(table, out), silent,
            known, anatomy, lost, causes, rates, *links, pace=pace, numbers=numbers,
            unseen=_unseen(guard.failed, silent), samples=samples, memory=memory,
        )  # fmt: skip

    def _summary(self, window: JobWindow) -> NumberSummary | None:
        return self._numbers.summary(window.ranks_expected) if window.gradients else None

    def _check(self, window: JobWindow) -> None:
        if not window.ended_s > window.began_s:
            raise ValueError(
                f"a window of job {window.job} ends at {window.ended_s}, and began at {window.began_s}"
            )
        if self._generation is not None and window.generation < self._generation:
            raise ValueError(
                f"a window of job {window.job} is of generation {window.generation}, and "
                f"{self._generation} has begun"
            )
        if window.ended_s <= self._ended_s:
            raise ValueError(
                f"a window of job {window.job} ends at {window.ended_s}, not after the one before "
                f"({self._ended_s})"
            )

    def _begin(self, window: JobWindow) -> None:
        before = self._memory if self._ranks == window.ranks_expected else None
        self._generation, self._ranks = window.generation, window.ranks_expected
        disks = self._memory.disks  # they fill whatever is trained
        self._memory = Memory(window.ranks_expected)
        self._memory.disks = disks
        if before is not None:  # as many ranks write as much, and step as fast
            self._memory.checkpoints, self._memory.pace = before.checkpoints, before.pace
        self._before = None
        self._pending = _Pending()

    def _judge(self, situation: LiveSituation, guard: PartGuard) -> None:
        """Run all detectors, which add to `situation.found`."""
        for name, detector in self._detectors.items():
            situation.found += guard.run(name, lambda judged=detector: list(judged(situation)), [])  # type: ignore[misc]


def _unseen(failed: Iterable[FailedPart], silent: frozenset[int]) -> frozenset[str]:
    """The kinds of findings that these parts look for; and those that need all stages, if some are silent."""
    found = frozenset(kind for each in failed for kind in KINDS.get(each.name, ()))
    return found | frozenset(KINDS["communication"]) if silent else found


def _sorted(found: Iterable[Finding], job: str) -> tuple[Finding, ...]:
    """The findings, about this job, the most expensive first."""
    return tuple(sorted((replace(each, job=job) for each in found), key=_cost))


def _of_links(situation: LiveSituation | None) -> tuple[str, str, str]:
    """Why links are suspected, and why probes of them name nobody, also in a word; "" each where that is not
    so."""
    if situation is None or not situation.transfer.suspicion:
        return "", "", ""
    if situation.links is None:
        return situation.transfer.suspicion, "not probed yet", Unknown.NOT_PROBED.value
    found = judge(situation.links)
    return situation.transfer.suspicion, found.unknown, found.code.value


def _out(table: RankTable, situation: LiveSituation | None) -> Bools:
    """Ranks that are not in this window, or in too few of the newest rows to be judged."""
    if situation is None:
        return table.out
    found: Bools = table.out | np.isnan(situation.against_peers.level)
    return found


def _nodes_seen(table: RankTable, out: Bools) -> frozenset[str]:
    places = table.seats.node[~out & (table.seats.node >= 0)]
    return frozenset(table.seats.nodes[place] for place in np.unique(places))


def _cost(finding: Finding) -> tuple[float, str, str]:
    """The most expensive finding first."""
    gains = [each.gain_ratio for each in finding.recommendations if each.gain_ratio is not None]
    return -max(gains, default=0.0), finding.kind, finding.subject


class _Pending:
    """Windows added up until most ranks have completed a step."""

    def __init__(self) -> None:
        self._sums: dict[str, Floats] = {}
        self._windows = 0
        self._began_s = 0.0

    def add(self, table: RankTable, window: JobWindow) -> None:
        if not self._sums:
            self._began_s = window.began_s
            self._sums = {name: table.values[name].copy() for name in NUMBERS}
        else:
            for name, values in table.values.items():
                both = self._sums[name]
                known = ~np.isnan(values)
                total = np.where(np.isnan(both), 0.0, both) + values if name in SUMS else values
                self._sums[name] = np.where(known, total, both)
        self._windows += 1
        stepped = ~np.isnan(self._sums["steps"])
        done, reporting = int(stepped.sum()), int((stepped | table.waiting).sum())
        enough = done > 0 and done >= policy.READY_RATIO * reporting
        self.ready = bool(enough or (done > 0 and self._windows >= policy.MERGED_MAX))

    def take(self, table: RankTable) -> tuple[RankTable, float]:
        """The sum of the windows, and when it began (s). Then it is empty."""
        found = replace(table, values=self._sums), self._began_s
        self._sums, self._windows = {}, 0
        return found
