"""Make reports of jobs: failures without memory, played out, findings of the live diagnosis, and clusters
whose nodes fall silent, simulated around the real core."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation
from controlplane.daemon.diagnosis import report, tunable
from controlplane.daemon.telemetry.job_time import Account, Spent
from controlplane.simulation.costs import RecoveryCosts, Setup
from controlplane.simulation.failures import Failures, Outage
from controlplane.simulation.world import JOB, World

if TYPE_CHECKING:
    from controlplane.analysis.live.watch import LiveDiagnosis
    from controlplane.analysis.proposals.reductions import RepeatedReductions

SLOW = Finding(
    "slow_rank", Level.CRITICAL, "rank 5 (n1, device 1)", "its own work takes 1.50 times as long",
    place=(("node", "n1"), ("rank", 5)), confidence=0.9,
    recommendations=(Recommendation("Swap the node.", 0.4, Effort.LOW), Recommendation("Look.", 0.4)),
)  # fmt: skip
BOUND = Finding(
    "communication_bound", Level.CRITICAL, "", "communication takes 49% of a step",
    recommendations=(Recommendation("Overlap it.", 0.49), Recommendation("Accumulate.", 0.245)),
)  # fmt: skip


def failing(
    interval_s: float, stall_s: float, mtbf_s: float, recovery_s: float, failures: int, seed: int = 1
) -> Spent:
    """What a job spends until so many failures, which have no memory: they hit copies and recoveries too."""
    random, spent = Random(seed), Spent()
    for _ in range(failures):
        left_s = random.expovariate(1.0 / mtbf_s)
        recovering_s = min(left_s, recovery_s) if spent.lost_s else 0.0
        spent.lose("signaled", recovering_s)
        whole, rest_s = divmod(left_s - recovering_s, interval_s + stall_s)
        spent.productive_s += whole * interval_s
        spent.lose("redone", min(rest_s, interval_s))
        spent.lose("snapshot", whole * stall_s + max(0.0, rest_s - interval_s))
    return spent


def reported(spent: Spent, *findings: Finding, newest: LiveDiagnosis | None = None) -> dict[str, Any]:
    """The report that a coordinator makes of a job that has spent this, with these findings open. `newest`:
    the newest window."""
    account, ledger = Account(0.0, spent), FindingLedger()
    for at in range(5):
        ledger.observe(float(at), "j", findings)
    told = report.of_job("j", "degraded", ledger, newest, now_s=5.0, every_s=5.0, rows_most=8)
    assert len(told["findings"]) == len(findings)
    return told | {"time": report.time_of(account)} | report.window_parts(newest)


BEATS_S = 8.0
"""The nodes of a simulated cluster are heard this often."""


class SilentNodes(World):
    """A simulated cluster of four nodes with one job, in which nodes may also be silent and live."""

    def __init__(self, *outages: Outage, hours: float = 12.0, timeout_s: float = 60.0) -> None:
        costs = RecoveryCosts(timeout_s, 10.0, 10.0, 20.0, 10.0)
        super().__init__(Setup(nodes=4, days=hours / 24.0, costs=costs), Failures("test", outages))
        self.clock.after(BEATS_S, self._beat)

    def _beat(self) -> None:
        self._refresh()
        self.clock.after(BEATS_S, self._beat)

    def silent(self, node: int, at_s: float, for_s: float) -> None:
        """Have a node say nothing for so long. Its processes live, and its agent speaks again."""
        self.clock.at(at_s, lambda: self._fall_silent(node))
        self.clock.at(at_s + for_s, lambda: self._speak(node))

    def _fall_silent(self, node: int) -> None:
        self._refresh()
        self.agents[node].up, self._beating = False, None

    def _speak(self, node: int) -> None:
        agent = self.agents[node]
        agent.up, self._beating = True, None
        self.feed(agent.beat(JOB))

    def parts(self, reduced: RepeatedReductions | None = None) -> dict[str, Any]:
        """What a report of the job has for proposals alone, at the end of the simulated time."""
        seen = tunable.TermSeen(self.clock.now, self.clock.now, 10.0)
        return tunable.of_job(self.cluster, self.cluster.state.jobs[JOB], seen, reduced)


def ran(*outages: Outage, **options: float) -> SilentNodes:
    """A simulated cluster after its time."""
    made = SilentNodes(*outages, **options)
    made.run()
    return made
