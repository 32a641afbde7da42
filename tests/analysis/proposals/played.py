"""Make reports of jobs: failures without memory, played out, and findings of the live diagnosis."""

from __future__ import annotations

from random import Random
from typing import Any

from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation
from controlplane.daemon.diagnosis import report
from controlplane.daemon.telemetry.job_time import Account, Spent

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


def reported(spent: Spent, *findings: Finding) -> dict[str, Any]:
    """The report that a coordinator makes of a job that has spent this, with these findings open."""
    account, ledger = Account(0.0, spent), FindingLedger()
    for at in range(5):
        ledger.observe(float(at), "j", findings)
    told = report.of_job("j", "degraded", ledger, None, now_s=5.0, every_s=5.0, rows_most=8)
    assert len(told["findings"]) == len(findings)
    return told | {"time": report.time_of(account)}
