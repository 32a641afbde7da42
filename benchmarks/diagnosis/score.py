"""Count whom the detectors of `holdfast doctor` name in recordings with planted faults: precision and recall
for each kind of fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.diagnosis.dumps import dumps
from benchmarks.diagnosis.fleets import PLANTS as FLEETS
from benchmarks.diagnosis.fleets import fleet
from benchmarks.diagnosis.planted import PLANTS as JOBS
from benchmarks.diagnosis.planted import planted
from benchmarks.diagnosis.stoppages import PLANTS as DUMPS
from controlplane.analysis.flight_records import diagnosis as of_dumps
from controlplane.analysis.flight_records.fields import dump_of
from controlplane.analysis.flight_records.records import DumpFolder
from controlplane.analysis.iterations import diagnosis as of_iterations
from controlplane.analysis.iterations.pace import Iterations
from controlplane.analysis.steps.records import KINDS, Timeline
from controlplane.analysis.timelines import diagnosis as of_timelines

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from benchmarks.diagnosis.dumps import DumpCase
    from benchmarks.diagnosis.fleets import Fleet, Sample
    from benchmarks.diagnosis.pipelines import Row
    from benchmarks.diagnosis.planted import Culprit
    from controlplane.core.state.findings import Finding

NOBODY = "uneven_micro_batches"
"""A finding that accuses nobody."""


@dataclass(slots=True)
class Score:
    """Counts over many recordings. `late`: by how many intervals onsets and recoveries were off."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    late: tuple[float, ...] = ()

    def add(self, named: set[Hashable], culprits: set[Hashable]) -> None:
        """Count one recording."""
        self.right += len(named & culprits)
        self.wrong += len(named - culprits)
        self.missed += len(culprits - named)

    @property
    def precision(self) -> float:
        """The share of those named that were to blame; 1 when nobody was named."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The share of those to blame that were named; 1 when nobody was to blame."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


def timeline(rows: Sequence[Row]) -> Timeline:
    """Rows as the columns that the detectors take."""
    columns = list(zip(*rows, strict=True))
    kinds = {kind: index for index, kind in enumerate(KINDS)}
    columns[4] = tuple(kinds[kind] for kind in columns[4])
    arrays = [np.array(column) for column in columns]
    return Timeline(*arrays)


def iterations(samples: Iterable[Sample]) -> list[Iterations]:
    """Samples by worker, in order of time."""
    found: dict[int, list[tuple[float, float]]] = {}
    for worker, time, seconds in samples:
        found.setdefault(worker, []).append((time, seconds))
    return [Iterations(worker, *np.array(sorted(rows)).T) for worker, rows in sorted(found.items())]


def accused(findings: Iterable[Finding]) -> set[Culprit]:
    """Who is named by the findings, in the form of `Case.culprits`."""
    places = [(each.kind, dict(each.place)) for each in findings if each.kind != NOBODY]
    return {(kind, place["dp_rank"], place["stage"]) for kind, place in places}  # type: ignore[misc]


def jobs(plant: str, seeds: Iterable[int]) -> Score:
    """The score over the timelines of one kind of planted fault."""
    score = Score()
    for seed in seeds:
        case = planted(plant, seed)
        score.add(set(accused(of_timelines.diagnose(timeline(case.rows)).findings)), set(case.culprits))
    return score


def fleets(plant: str, seeds: Iterable[int]) -> Score:
    """The score over the iteration times of one kind of planted fault."""
    score = Score()
    for seed in seeds:
        case = fleet(plant, seed)
        found = of_iterations.diagnose(iterations(case.samples))
        named = {dict(each.place)["worker"] for each in found.findings}
        score.add(set(named), set(case.slow))
        score.late += tuple(late(case, found))
    return score


def flights(plant: str, seeds: Iterable[int]) -> Score:
    """The score over the dumps of one kind of planted fault. Culprits count as named. A rank that is said to
    be undetermined counts only if the truth does not allow that: as wrongly named."""
    score = Score()
    for seed in seeds:
        case = dumps(plant, seed)
        found = judged(case)
        unsure = {each.rank for each in found.undetermined}
        score.add({each.rank for each in found.culprits} | (unsure - case.either), set(case.culprits))
    return score


def judged(case: DumpCase) -> of_dumps.FlightDiagnosis:
    """What the detector says of a case."""
    read = [dump_of(rank, f"rank {rank}", dump) for rank, dump in case.dumps.items()]
    return of_dumps.diagnose(DumpFolder(tuple(read)))


def late(case: Fleet, found: of_iterations.IterationsDiagnosis) -> list[float]:
    """By how many intervals the onsets and recoveries of the slow workers that were named are off.

    Infinite where one was planted and not seen, or seen and not planted."""
    off = []
    for worker in found.workers:
        truth = case.slow.get(int(worker.worker))
        if truth is None or worker.state not in ("straggler", "recovered"):
            continue
        for seen, planted_at in ((worker.onset, truth.onset), (worker.recovery, truth.recovery)):
            if (seen is None) != (planted_at is None):
                off.append(float("inf"))
            elif seen is not None and planted_at is not None:
                off.append(abs(seen - planted_at) / case.interval)
    return off


_KINDS = (("timeline", JOBS, jobs), ("iterations", FLEETS, fleets), ("dumps", DUMPS, flights))


def table(seeds: Sequence[int]) -> str:
    """The scores of every kind of planted fault, as a table in Markdown."""
    lines = [
        "| data | planted | recordings | right | wrong | missed | precision | recall | onset off by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for data, plants, count in _KINDS:
        for plant in plants:
            score = count(plant, seeds)
            shares = f"{score.precision:.3f} | {score.recall:.3f}" if score.right + score.missed else "|"
            off = f"{max(score.late):.1f} iterations" if score.late else ""
            lines.append(
                f"| {data} | {plant} | {len(seeds)} | {score.right} | {score.wrong} | {score.missed} | "
                f"{shares} | {off} |"
            )
    return "\n".join(lines)
