"""Findings of diagnosis are part of the one health report: of the job, and of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.records import events as ev
from controlplane.core.records.diagnosis import OpenFinding
from tests.core.checkpoint.test_durability import alerts, row
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

SLOW = OpenFinding("slow_rank", "degraded", "rank 1", "its own work takes 2.1 times as long", "a")


def diagnose(stage: Play, *findings: OpenFinding, job: str = "j") -> list[str]:
    stage.feed(ev.Diagnosed(job, findings))
    return stage.do("live 2")


def test_an_open_finding_degrades_its_job_and_alerts_once() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    (alert,) = alerts(diagnose(stage, SLOW))
    assert "slow_rank" in alert and "rank 1" in alert
    assert (row(stage).health, row(stage).troubles) == ("degraded", (SLOW.reason,))
    assert not alerts(diagnose(stage, SLOW))
    (resolved,) = alerts(diagnose(stage))
    assert "resolved" in resolved and row(stage).health == "healthy"


def test_a_muted_finding_is_shown_and_alerts_nobody() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    muted = OpenFinding("slow_rank", "degraded", "rank 1", "slow", "a", muted=True)
    assert not alerts(diagnose(stage, muted))
    assert view.health(stage.cluster, stage.now).reasons == ("j: rank 1: slow",)


def test_a_job_that_is_not_known_has_no_findings() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    assert not alerts(diagnose(stage, SLOW, job="other"))
    assert view.health(stage.cluster, stage.now).level == "healthy"


def test_what_a_job_waits_for_is_said_before_what_slowed_its_steps() -> None:
    """A table shows one reason, and the job stands still for that one."""
    stage = running("submit nodes=1 nproc=2", "a")
    idle = OpenFinding(
        "device_underused", "degraded", "", "a typical device computes for 42% of the time", "a"
    )
    diagnose(stage, idle)
    stage.do("wait 40")
    assert row(stage).phase == "parked"
    assert row(stage).troubles == ("waits for a, or another node with room", idle.reason)
