"""A script's report of a numeric anomaly comes late: its generation is over, or stops already."""

from __future__ import annotations

import pytest

from controlplane.core.failures import numeric_anomalies
from controlplane.core.records.model import Fault, JobPhase
from tests.core.failures.test_late_corruption import MOMENTS, back, gone_on, job, trusts_its_start
from tests.core.test_cluster import running

ANOMALY = "gen=1 on=j.1000000"


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_generation_goes_on_from_a_state_that_holds_nan_however_late_that_is_heard(moment: str) -> None:
    stage = gone_on(moment)
    lines = stage.do(f"fault 120 loss is nan {ANOMALY}")
    assert Fault(120, 1) in job(stage).numbers.faults
    for _ in range(4):
        lines += stage.do("stored")
    assert stage.etcd.states["j"].faults == job(stage).numbers.faults, "the next leader knows the same"
    if moment == "while ranks stop":  # nothing is chosen yet: it will be a state before the anomaly
        back(stage, "j.1000003", held=125, alive=("j.1000000", "j.1000002"))
        stage.do("stored", "stored")
        found = job(stage).generation
        assert found is not None and (found.number, found.resume.step) == (2, 90)
        assert trusts_its_start(stage)
        return
    assert job(stage).phase in (JobPhase.STOPPING, JobPhase.LOADING), lines
    assert not any(line.startswith("Form ") for line in lines), "nobody goes on from there"
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " rollback " in judged and "CorruptState" not in judged


def test_a_late_anomaly_stops_the_job_where_the_policy_says_stop() -> None:
    stage = gone_on("while it trains", "on_nan=stop")
    lines = stage.do(f"fault 120 loss is nan {ANOMALY}", "stored")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " stop " in judged


def test_a_late_anomaly_is_ignored_where_the_policy_says_so() -> None:
    stage = gone_on("while it trains", "on_nan=ignore")
    stage.do(f"fault 120 loss is nan {ANOMALY}", "stored")
    assert (job(stage).phase, job(stage).numbers.faults) == (JobPhase.RUNNING, ())


@pytest.mark.parametrize("moment", ["while it forms", "while it trains"])
def test_an_anomaly_beyond_the_step_from_which_they_went_on_stops_nobody(moment: str) -> None:
    stage = gone_on(moment)
    before = job(stage).phase
    lines = stage.do(f"fault 126 loss is nan {ANOMALY}", "stored")
    assert job(stage).phase is before and trusts_its_start(stage)
    assert not any(line.startswith(("Kill", "Judged", "Interrupt")) for line in lines), lines
    assert numeric_anomalies.speaks_against(job(stage), 126, 1)
    assert not numeric_anomalies.speaks_against(job(stage), 126, 2)


def test_the_same_late_anomaly_of_every_rank_is_kept_once() -> None:
    stage = gone_on("while it trains")
    stage.do(f"fault 120 loss is nan {ANOMALY}", "fault 120 loss is nan gen=1 on=j.1000002")
    assert job(stage).numbers.faults == (Fault(120, 1), Fault(125, 2))


def test_an_anomaly_of_a_generation_that_was_never_there_changes_nothing() -> None:
    stage = gone_on("while it trains")
    stage.do("fault 120 loss is nan gen=0 on=j.1000000")
    assert job(stage).numbers.faults == ()


def test_once_the_ranks_may_have_returned_it_is_only_said_that_their_last_states_hold_nan() -> None:
    stage = running("submit nodes=3 nproc=1", "abc")
    stage.do("all running gen=1 step=125 snap=90 snapgen=1")
    stage.do("all finished gen=1 step=125 held=125 snap=125 snapgen=1", "stored", "stored")
    assert job(stage).phase is JobPhase.LEAVING
    lines = stage.do(f"fault 120 loss is nan {ANOMALY}", "stored")
    assert not any(line.startswith(("Kill", "Judged", "Interrupt")) for line in lines), lines
    assert job(stage).phase is JobPhase.LEAVING and "is not trusted" in stage.etcd.states["j"].reason
