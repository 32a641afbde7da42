"""A job whose cause will certainly come again is stopped where the policy is to act, and not by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core.cluster import Cluster
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from controlplane.core.records.timing import CoreSettings
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

ADVICE = "an earlier attempt ended with the same failure at step 4"


def failed(policy: str) -> Play:
    """A job of two ranks, of which one has just been lost: incident 1 is open."""
    stage = running()
    stage.cluster.state.settings = stage.cluster.settings = CoreSettings(restart_policy=policy)
    stage.do(f"report {stage.cluster.state.jobs['j'].seats[1].member} exited code=1")
    assert stage.cluster.state.jobs["j"].recovery.incidents == 1
    return stage


def tell(stage: Play, *, incident: int = 1, restart: bool = False, confidence: float = 0.95) -> JobPhase:
    """The job's phase after it was told this cause, and etcd has answered."""
    cause = ev.CauseFound(
        "j", incident, "exception", "the script raised an exception", restart=restart, advice=ADVICE,
        advice_confidence=confidence,
    )  # fmt: skip
    stage.feed(cause)
    stage.do("stored")
    return stage.cluster.state.jobs["j"].phase


def test_what_comes_again_for_certain_stops_the_job_with_the_reason() -> None:
    stage = failed("act")
    assert tell(stage) is JobPhase.FAILED
    assert ADVICE in stage.cluster.state.jobs["j"].reason


@pytest.mark.parametrize("policy", ["report", "off"])
def test_without_the_policy_to_act_the_job_goes_on(policy: str) -> None:
    stage = failed(policy)
    assert not tell(stage).value.startswith("fail") and CoreSettings().restart_policy == "report"


@pytest.mark.parametrize(
    "told",
    [{"confidence": 0.8}, {"restart": True}, {"incident": 2}, {"incident": 0}, {"confidence": float("nan")}],
)  # fmt: skip
def test_a_guess_another_incident_or_hope_stops_nobody(told: dict[str, float]) -> None:
    assert tell(failed("act"), **told) is not JobPhase.FAILED  # type: ignore[arg-type]


def test_of_an_unknown_job_nothing_is_heard() -> None:
    cluster = Cluster(CoreSettings(restart_policy="act"))
    cluster.step(0.0, ev.Elected(1))
    cluster.step(1.0, ev.CauseFound("nobody", 1, "exception", "x", restart=False, advice_confidence=1.0))
    assert cluster.counts == {"stale_cause": 1}
