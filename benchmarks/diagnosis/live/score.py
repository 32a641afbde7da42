"""Run the live diagnosis over drawn jobs, and count whom it names, how soon, and what it costs."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.diagnosis.score import Score
from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.live.watch import JobWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.diagnosis.live.draw import Truth
    from controlplane.analysis.live.readings import JobWindow
    from controlplane.core.records.diagnosis import Thresholds
    from controlplane.core.state.findings import Finding

BUCKETS = ((1.05, 1.1), (1.1, 1.15), (1.15, 1.3), (1.3, 1.5), (1.5, 2.0), (2.0, 3.01))
"""Factors, by which recall is counted apart."""
LOCALISED = ("slow_rank", "slow_node", "throttled", "heavy_work", "slow_data", "slow_snapshot")
"""Kinds of faults that are on one rank or node, and must be found there."""
FAULTY = ("slow_rank", "slow_node", "throttled", "slow_data", "slow_snapshot")
"""Findings that accuse a node, or a rank on it."""

Named = tuple[str, int, int, int]
"""(kind, rank, node, stage); -1: not limited to one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the diagnosis made of one job. `opened`: each finding, and in which window it opened."""

    seed: int
    truth: Truth
    per_node: int
    opened: dict[Named, int]
    texts: tuple[str, ...]
    failed: tuple[str, ...]
    windows: int
    rows: int
    cpu_s: float
    ended_s: tuple[float, ...] = ()  # of each window

    @property
    def expected(self) -> Named | None:
        """Who must be named; None: nobody."""
        truth = self.truth
        return None if truth.kind == "none" else (truth.kind, truth.rank, truth.node, truth.stage)

    @property
    def somewhere(self) -> bool:
        """Whether what is wrong is on one rank or node, and must be found there."""
        truth = self.truth
        return truth.kind in LOCALISED and (truth.rank >= 0 or truth.node >= 0)

    @property
    def right_place(self) -> int | None:
        """The window in which the right rank or node was first named, of whatever kind; None: never."""
        node = self.truth.node if self.truth.node >= 0 else self.truth.rank // self.per_node
        found = [
            at
            for (_, rank, at_node, _), at in self.opened.items()
            if (rank == self.truth.rank if self.truth.rank >= 0 else rank < 0 and at_node == node)
        ]
        return min(found, default=None)


def judge(
    seed: int,
    windows: Iterable[JobWindow],
    truth: Truth,
    per_node: int,
    thresholds: Thresholds | None = None,
) -> Outcome:
    """Watch one job to its end."""
    watch, ledger = JobWatch(thresholds), FindingLedger()
    opened: dict[Named, int] = {}
    texts: list[str] = []
    failed: Counter[str] = Counter()
    spent, rows = 0.0, 0
    ended_s: list[float] = []
    for index, window in enumerate(windows):
        begun = time.process_time()
        found = watch.observe(window)
        changes = ledger.observe(window.ended_s, window.job, found.findings) if found.judged else ()
        spent += time.process_time() - begun
        ended_s.append(window.ended_s)
        rows += len(window.ranks.seats)
        failed.update(f"{each.name}: {each.error}" for each in found.failed_detectors)
        for change in changes:
            if change.kind is ChangeKind.OPENED:
                finding = change.entry.finding
                opened.setdefault(named(finding), index)
                texts.append(
                    f"window {index}: {finding.severity} {finding.kind} {finding.subject}: {finding.reason}"
                )
    return Outcome(
        seed, truth, per_node, opened, tuple(texts), tuple(failed), len(ended_s), rows, spent, tuple(ended_s)
    )  # fmt: skip


def named(finding: Finding) -> Named:
    """Whom a finding names."""
    place = dict(finding.place)
    rank, node, stage = place.get("rank"), place.get("node"), place.get("stage")
    if finding.kind == "heavy_work" and rank is None:
        rank = place.get("dp_rank")
    if rank is not None:
        return finding.kind, int(rank), -1, -1
    if node is not None:
        return finding.kind, -1, int(str(node).removeprefix("n")), -1
    return finding.kind, -1, -1, -1 if stage is None else int(stage)


@dataclass(slots=True)
class Tally:
    """Counts over many jobs."""

    kinds: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    buckets: dict[str, dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    soon: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    soon_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    costs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0.0]))
    nodes: Score = field(default_factory=Score)
    nodes_all: Score = field(default_factory=Score)  # those of faults below FAULT_LEAST too
    unfound: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    places: list[tuple[float, bool]] = field(default_factory=list)
    healthy: int = 0
    healthy_named: int = 0
    jobs: int = 0
    windows: int = 0
    rows: int = 0
    cpu_s: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one job."""
        expected, truth = outcome.expected, outcome.truth
        self.jobs += 1
        self.windows += outcome.windows
        self.rows += outcome.rows
        self.cpu_s += outcome.cpu_s
        self.failed.update(outcome.failed)
        for each in outcome.opened:
            self.kinds[each[0]].wrong += each != expected
        if expected is None:
            self.healthy += 1
            self.healthy_named += bool(outcome.opened)
        else:
            self._faulty(outcome, expected)
        accused = {node for each in outcome.opened if (node := _node(each, outcome.per_node)) is not None}
        node = _node(expected, outcome.per_node) if expected else None
        guilty = {node} if node is not None and truth.factor >= FAULT_LEAST else set()
        self.nodes.right += len(accused & {node})
        self.nodes.wrong += len(accused - {node})
        self.nodes.missed += len(guilty - accused)
        self.nodes_all.add(set(accused), {node} if node is not None else set())
        self._told(outcome)

    def _told(self, outcome: Outcome) -> None:
        """Keep what was not found where it is, and what was found that is not, to be looked at."""
        cost = self.costs[outcome.truth.kind]
        cost[0] += 1
        cost[1] += outcome.rows
        cost[2] += outcome.cpu_s
        job = {"seed": outcome.seed, "windows": outcome.windows, **asdict(outcome.truth)}
        if outcome.somewhere and outcome.right_place is None:
            self.unfound.append(job)
        if odd := [each for each in outcome.opened if each != outcome.expected]:
            self.wrong.append({**job, "named": odd})

    def _faulty(self, outcome: Outcome, expected: Named) -> None:
        truth = outcome.truth
        score = self.kinds[truth.kind]
        hit = expected in outcome.opened
        score.right += hit
        score.missed += not hit
        if hit:
            at = outcome.opened[expected]
            self.soon[truth.kind].append(max(0, at - truth.onset))
            began_s = outcome.ended_s[truth.onset - 1] if truth.onset else 0.0
            self.soon_s[truth.kind].append(max(0.0, outcome.ended_s[at] - began_s))
        name = next((f"{low:g}-{high:g}" for low, high in BUCKETS if truth.factor < high), "more")
        counts = self.buckets[truth.kind].setdefault(name, [0, 0])
        counts[0] += hit
        counts[1] += 1
        if outcome.somewhere:
            self.places.append((truth.factor, outcome.right_place is not None))

    def as_data(self) -> dict[str, Any]:
        """Everything that was counted, for programs."""
        return {
            "jobs": self.jobs,
            "windows": self.windows,
            "localisation": _share([hit for factor, hit in self.places if factor >= FAULT_LEAST]),
            "localisation_all": _share([hit for _, hit in self.places]),
            "faulty_node": _score(self.nodes),
            "faulty_node_all": _score(self.nodes_all),
            "healthy_jobs": self.healthy,
            "healthy_jobs_with_findings": self.healthy_named,
            "kinds": {kind: self._kind(kind) for kind in sorted(self.kinds)},
            "healthy_cost": self._cost("none"),
            "cpu_s": round(self.cpu_s, 3),
            "cpu_us_per_rank_and_window": round(1e6 * self.cpu_s / max(1, self.rows), 3),
            "failed_detectors": dict(self.failed),
            "not_found_where_they_are": self.unfound,
            "wrong_findings": self.wrong,
        }

    def _kind(self, kind: str) -> dict[str, Any]:
        soon, soon_s = self.soon.get(kind, []), self.soon_s.get(kind, [])
        return {
            **_score(self.kinds[kind]),
            "recall_by_factor": {
                name: {"named": hit, "of": of}
                for name, (hit, of) in sorted(self.buckets.get(kind, {}).items())
            },
            "windows_to_find_median": statistics.median(soon) if soon else None,
            "windows_to_find_max": max(soon, default=None),
            "seconds_to_find_median": round(statistics.median(soon_s), 1) if soon_s else None,
            "seconds_to_find_max": round(max(soon_s), 1) if soon_s else None,
            **self._cost(kind),
        }

    def _cost(self, kind: str) -> dict[str, Any]:
        """What judging the jobs of this kind has cost."""
        jobs, rows, cpu_s = self.costs.get(kind, (0, 0, 0.0))
        return {"jobs": jobs, "cpu_us_per_rank_and_window": round(1e6 * cpu_s / max(1, rows), 3)}


FAULT_LEAST = 1.15
"""A fault that makes its part less slow than this need not be named: the limit is 1.10, and must be exceeded
for certain."""


def _node(each: Named, per_node: int) -> int | None:
    if each[0] not in FAULTY:
        return None
    if each[1] >= 0:
        return each[1] // per_node
    return each[2] if each[2] >= 0 else None


def _share(hits: list[bool]) -> float | None:
    return round(sum(hits) / len(hits), 4) if hits else None


def _score(score: Score) -> dict[str, Any]:
    both = score.precision + score.recall
    return {
        "right": score.right,
        "wrong": score.wrong,
        "missed": score.missed,
        "precision": round(score.precision, 4),
        "recall": round(score.recall, 4),
        "f1": round(2.0 * score.precision * score.recall / both, 4) if both else 0.0,
    }
