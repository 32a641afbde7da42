"""Make the windows of small jobs, row by row, so that a test can say exactly what each rank does."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.live.readings import JobWindow, RankWindow
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch, LiveDiagnosis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.core.state.findings import Finding

STEPS = 5


def row(rank: int, window: int, own_s: float, step_s: float, **changed: Any) -> RankWindow:
    """A rank that works `own_s` in each of five steps and waits for the rest of `step_s`."""
    data_s, snapshot_s = changed.pop("data_s", 0.02) * STEPS, changed.pop("snapshot_s", 0.0) * STEPS
    whole = RankWindow(
        rank=rank,
        member=f"m{rank}",
        node=f"n{rank // 4}",
        device=rank % 4,
        domain="",
        dp_rank=rank,
        stage=0,
        cp_rank=0,
        tp_rank=0,
        generation=1,
        steps=STEPS,
        last_step=STEPS * (window + 1),
        covered=STEPS,
        wall_s=step_s * STEPS,
        data_s=data_s,
        forward_s=0.3 * own_s * STEPS,
        backward_s=0.6 * own_s * STEPS,
        communication_s=max(0.0, (step_s - own_s) * STEPS - data_s - snapshot_s),
        optimizer_s=0.1 * own_s * STEPS,
        snapshot_s=snapshot_s,
        other_s=0.0,
        cpu_s=0.2 * own_s * STEPS,
        longest_s=3.0,
        memory_bytes=10 * 2**30,
    )
    return whole._replace(**changed)


def job(
    ranks: int,
    count: int = 30,
    own: Callable[[int, int], float] = lambda rank, window: 1.0,
    change: Callable[[int, int, RankWindow], RankWindow] = lambda rank, window, row: row,
    *,
    noise: float = 0.01,
    seed: int = 7,
) -> list[JobWindow]:
    """Windows of 10 s. `own`: s of own work per step; `change`: replaces a row."""
    random, found = Random(seed), []
    for window in range(count):
        works = [own(rank, window) * random.gauss(1.0, noise) for rank in range(ranks)]
        step_s = max(works) + 0.1
        rows = [change(rank, window, row(rank, window, works[rank], step_s)) for rank in range(ranks)]
        found.append(JobWindow("j", 1, 10.0 * window, 10.0 * window + 10.0, columns_of(rows), ranks))
    return found


def rows_of(window: JobWindow) -> list[RankWindow]:
    """The rows of a window, one by one."""
    found = zip(window.ranks.seats, window.ranks.numbers.tolist(), strict=True)
    return [RankWindow(*seat, *numbers) for seat, numbers in found]


def watched(windows: Iterable[JobWindow], watch: JobWatch | None = None) -> list[LiveDiagnosis]:
    """What the diagnosis makes of each window; no detector fails."""
    watch = watch or JobWatch()
    found = [watch.observe(window) for window in windows]
    assert not any(each.failed_detectors for each in found)
    return found


def opened(diagnoses: Iterable[LiveDiagnosis]) -> list[Finding]:
    """The findings that open, in order, as people would be told."""
    ledger = FindingLedger()
    changes = [
        change
        for each in diagnoses
        if each.judged
        for change in ledger.observe(each.ended_s, each.job, each.findings)
    ]
    return [each.entry.finding for each in changes if each.kind is ChangeKind.OPENED]


def kinds(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in findings]
