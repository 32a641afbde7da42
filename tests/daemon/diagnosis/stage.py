"""A running job of four ranks on two nodes, and agents that report how its steps were spent."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.core.records.diagnosis import ProbeLinks, StepTimes
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.diagnosis.diagnosing import Diagnosis
from controlplane.daemon.diagnosis.link_probes import LinkProbes
from controlplane.diagnosis_settings import DiagnosisSettings
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.numbers import NumberSummary

EVERY_S = 5.0
STEPS = 50


class Stage:
    """The leader's core, its diagnosis, and what it has told others."""

    def __init__(
        self,
        ledger: FindingLedger | None = None,
        every_s: float = EVERY_S,
        policy: str = "report",
        risk: str = "report",
        **limits: Any,
    ) -> None:
        self.orders: list[ProbeLinks] = []
        settings = CoreSettings(slow_rank_policy=policy, node_risk_policy=risk)
        self.play = running("submit nodes=2 nproc=2", settings=settings)
        self.wall_s, self.step = 1000.0, 0
        self.posted: list[Any] = []
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.kept: list[tuple[list[dict[str, Any]], int]] = []  # what was saved, after how many lines
        self.shown: dict[str, tuple[dict[str, float], float]] = {}
        self.lost: list[dict[str, float]] = []  # by window
        self.told: dict[str, tuple[Any, ...]] = {}  # columns of newer agents, four values each
        self.numbers: dict[str, NumberSummary] = {}
        self.etas: dict[str, float | None] = {}
        self.failed: dict[str, int] = {}
        self.diagnosis = Diagnosis(
            self.play.cluster,
            ledger or FindingLedger(),
            dataclasses.replace(DiagnosisSettings(diagnose_every_s=every_s), **limits),
            post=self.posted.append,
            write=lambda kind, body: self.written.append((kind, body)),
            show=lambda job, shares, ratio: self.shown.__setitem__(job, (dict(shares), ratio)),
            lose=lambda _job, lost_s: self.lost.append(dict(lost_s)),
            show_numbers=self.numbers.__setitem__,
            show_eta=self.etas.__setitem__,
            show_failed=self.failed.__setitem__,
            keep=self._keep,
            probes=LinkProbes(self.play.cluster, self._probe, 1),
            wall=lambda: self.wall_s,
        )

    def _probe(self, order: ProbeLinks) -> str:
        self.orders.append(order)
        return ""

    async def _keep(self) -> None:
        self.kept.append((self.diagnosis.ledger.rows("j"), len(self.written)))

    async def windows(self, count: int, slow: dict[int, float] | None = None) -> None:
        """Let so many windows pass. `slow`: by which factor a rank's forward takes longer."""
        for _ in range(count):
            self.wall_s += EVERY_S
            self.step += STEPS
            self.report(slow or {})
            await self.diagnosis.look()

    def report(self, slow: dict[int, float]) -> None:
        """Have both agents report one window."""
        for times in self.times(slow):
            self.diagnosis.take(times)

    def times(self, slow: dict[int, float]) -> Iterator[StepTimes]:
        """What both agents report of one window: a step is as long as its slowest rank."""
        generation = self.play.cluster.state.jobs["j"].generation
        assert generation is not None
        work_s = {seat.rank: 0.04 * slow.get(seat.rank, 1.0) for seat in generation.seats}
        longest_s = max(work_s.values())
        for node in ("a", "b"):
            seats = [seat for seat in generation.seats if seat.node == node]
            own_s = [work_s[seat.rank] * STEPS for seat in seats]
            wall_s = [(longest_s + 0.01) * STEPS for _ in seats]
            none, zero = tuple(0.0 for _ in seats), tuple(0 for _ in seats)
            told: dict[str, Any] = {
                name: tuple(values[seat.rank] for seat in seats) for name, values in self.told.items()
            }
            yield (
                StepTimes(
                    node=node,
                    incarnation=1,
                    job="j",
                    span_s=EVERY_S,
                    members=tuple(seat.member for seat in seats),
                    ranks=tuple(seat.rank for seat in seats),
                    generations=tuple(generation.number for _ in seats),
                    steps=tuple(STEPS for _ in seats),
                    last_steps=tuple(self.step for _ in seats),
                    covered=tuple(STEPS for _ in seats),
                    wall_s=tuple(wall_s),
                    data_s=none,
                    forward_s=tuple(own_s),
                    backward_s=none,
                    communication_s=tuple(wall_s[0] - mine_s for mine_s in own_s),
                    optimizer_s=none,
                    snapshot_s=none,
                    other_s=none,
                    cpu_s=tuple(0.04 * STEPS for _ in seats),
                    longest_s=tuple(longest_s + 0.01 for _ in seats),
                    samples=zero,
                    tokens=zero,
                    flops=none,
                    memory_bytes=tuple(1 << 30 for _ in seats),
                    memory_peak_bytes=zero,
                    **told,
                )
            )

    def report_of(self, job: str = "j") -> dict[str, Any]:
        return self.diagnosis.report(job, "healthy", 100)
