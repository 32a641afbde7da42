"""A job that acts on replicas that differ hears of it late: the generation in which they did is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core.failures import numeric_anomalies
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Fault, JobPhase, Tier, Window
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.state.job import Job
    from tests.transcripts.language import Play

ACTS = "submit nodes=3 nproc=1 check=10 on_corrupt=act skip=1"
DIFFERS = "ranks=0,1,2 odd=2 gen=1 on=j.1000000"
MOMENTS = ("while ranks stop", "while it is stored", "while it forms", "while it trains")


def job(stage: Play) -> Job:
    return stage.cluster.state.jobs["j"]


def gone_on(moment: str, options: str = "") -> Play:
    """Rank 1 has died with 125 steps completed. The others go on from there, whatever was not heard yet."""
    stage = running(f"{ACTS} {options}", "abc")
    stage.do("all running gen=1 step=125 snap=90 snapgen=1")
    stage.do("report j.1000001 exited cause=signaled signal=9", "stored")
    if moment == "while ranks stop":
        return stage
    back(stage, "j.1000003", held=125, alive=("j.1000000", "j.1000002"))
    assert job(stage).phase is JobPhase.STORING
    if moment == "while it is stored":
        return stage
    stage.do("stored")
    if moment == "while it trains":
        stage.do("all forming gen=2", "all running gen=2 step=125", "started")
    found = job(stage).generation
    assert found is not None and (found.resume.tier, found.resume.step) == (Tier.DONOR, 125)
    return stage


def back(stage: Play, new: str, *, held: int, alive: tuple[str, ...], gen: int = 1) -> None:
    """All come to the barrier, one as a new process."""
    stage.do(f"report {new} starting", f"report {new} ready held=-1")
    stage.do(*(f"report {each} ready held={held} gen={gen}" for each in alive))


def trusts_its_start(stage: Play) -> bool:
    found = job(stage).generation
    assert found is not None
    return not numeric_anomalies.speaks_against(job(stage), found.resume.step, found.resume.born)


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_generation_goes_on_from_a_state_that_was_corrupt_however_late_that_is_heard(moment: str) -> None:
    stage = gone_on(moment)
    lines = stage.do(f"replicas 120 90 {DIFFERS}")
    assert any("state_corrupt" in line for line in lines), "people hear of it"
    assert Fault(91, 1, corrupt=True) in job(stage).numbers.faults
    for _ in range(4):
        lines += stage.do("stored")
    assert stage.etcd.states["j"].faults == job(stage).numbers.faults, "the next leader knows the same"
    assert job(stage).phase in (JobPhase.STOPPING, JobPhase.LOADING), lines
    assert not any(line.startswith("Form ") for line in lines), "nobody goes on from there"
    incident = job(stage).recovery.incident
    assert incident is not None and "CorruptState" in " ".join(incident.verdict.evidence), incident


def test_while_it_is_stored_the_rank_that_differs_is_replaced_and_all_go_back_before_it() -> None:
    stage = gone_on("while it is stored")
    lines = stage.do(f"replicas 120 90 {DIFFERS}")
    assert any(line.startswith("Kill c j.1000002") for line in lines), lines
    assert stage.do(f"replicas 120 90 {DIFFERS.replace('j.1000000', 'j.1000002')}") == [], "the same again"
    stage.do("report j.1000002 exited cause=signaled signal=9", "stored", "stored")
    back(stage, "j.1000004", held=125, alive=("j.1000000",))
    stage.do("report j.1000003 ready held=-1", "stored", "stored")
    found = job(stage).generation
    assert found is not None and (found.number, found.resume.step, found.resume.tier) == (3, 90, Tier.MEMORY)
    assert trusts_its_start(stage) and found.resume.skip == (), "no data is to blame"


def test_a_leader_that_dies_before_it_could_go_back_leaves_that_to_the_next() -> None:
    stage = gone_on("while it is stored")
    stage.do(f"replicas 120 90 {DIFFERS}", "stored")
    for state in [each for each in stage.asked if isinstance(each, fx.StoreJob)]:
        stage.etcd.put(state)
    lines = stage.do("crash", "elect", "hello a", "hello b", "hello c")
    assert job(stage).generation_number == 2 and not trusts_its_start(stage)
    judged = [line for line in lines if line.startswith("Judged")]
    assert judged and " rollback " in judged[-1], lines


def test_without_a_majority_the_stored_generation_is_not_formed_all_the_same() -> None:
    stage = gone_on("while it is stored")
    lines = stage.do("replicas 120 90 ranks=0,1 gen=1 on=j.1000000")
    assert job(stage).phase is JobPhase.STORING and not any(line.startswith("Kill") for line in lines)
    lines = stage.do("stored")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " rollback " in judged and not any(line.startswith("Form ") for line in lines)


@pytest.mark.parametrize("moment", ["while it forms", "while it trains"])
def test_what_came_after_the_step_from_which_they_went_on_stops_nobody(moment: str) -> None:
    """The generation began from a state that all held alike: only what came beyond it is distrusted."""
    stage = gone_on(moment)
    before = job(stage).phase
    lines = stage.do(f"replicas 130 125 {DIFFERS}", "stored")
    assert job(stage).phase is before and trusts_its_start(stage)
    assert job(stage).numbers.faults == (Fault(126, 1, corrupt=True),)
    assert not any(line.startswith(("Kill", "Judged", "Interrupt")) for line in lines), lines


def test_while_it_is_stored_a_later_corruption_without_a_majority_stops_nobody_either() -> None:
    stage = gone_on("while it is stored")
    stage.do("replicas 130 125 ranks=0,1 gen=1 on=j.1000000")
    lines = stage.do("stored", "stored")
    assert job(stage).phase is JobPhase.FORMING and any(line.startswith("Form ") for line in lines)


def test_what_descends_from_it_in_several_generations_is_not_trusted() -> None:
    stage = gone_on("while it trains")
    stage.do("all running gen=2 step=150 snap=140 snapgen=2")
    stage.do("report j.1000003 exited cause=signaled signal=9", "stored")
    back(stage, "j.1000004", held=150, alive=("j.1000000", "j.1000002"), gen=2)
    stage.do("stored", "all forming gen=3", "all running gen=3 step=150", "started", "stored")
    assert job(stage).generation_number == 3 and job(stage).phase is JobPhase.RUNNING
    lines = stage.do(f"replicas 120 90 {DIFFERS}")
    expected = (Fault(91, 1, corrupt=True), Fault(125, 2, corrupt=True), Fault(150, 3, corrupt=True))
    assert job(stage).numbers.faults == expected
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " rollback " in judged
    assert numeric_anomalies.speaks_against(job(stage), 140, 2)
    assert not numeric_anomalies.speaks_against(job(stage), 90, 1)


def test_buffers_are_not_acted_on_late_either() -> None:
    stage = gone_on("while it is stored")
    stage.do(f"replicas 120 90 {DIFFERS} buffers=yes", "stored", "stored")
    assert (job(stage).phase, job(stage).numbers.faults) == (JobPhase.FORMING, ())


def test_what_only_the_script_can_have_done_stops_the_job_late_too() -> None:
    passes = "passes=seen:0:a,b,a;again:0:a,b,a;again:0:a,b,a;exchanged:1:b,a,a;exchanged:2:a,a,b"
    stage = gone_on("while it is stored")
    lines = stage.do(f"replicas 120 90 {DIFFERS.replace('odd=2', 'odd=1')} replay=done {passes}")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " stop " in judged and not any("device_" in line for line in lines)


def test_a_write_while_the_next_generation_is_stored_keeps_what_that_one_said() -> None:
    """The next leader must not train again on what was left out because of an anomaly, and must know that
    the incident is not over."""
    stage = running(ACTS, "abc")
    stage.do("all running gen=1 step=95 snap=90 snapgen=1")
    stage.do("all running gen=1 step=125 snap=120 snapgen=1")
    stage.do("fault 124 loss is nan", "stored")
    stage.do("report j.1000000 ready held=125 gen=1", "report j.1000001 ready held=125 gen=1")
    stage.do("report j.1000002 ready held=125 gen=1")
    assert job(stage).phase is JobPhase.STORING
    stage.do("replicas 130 125 ranks=0,1 gen=1 on=j.1000000", "stored", "stored")
    assert job(stage).phase is JobPhase.FORMING
    assert stage.etcd.states["j"].skips == (Window(124, 125),)
    assert stage.etcd.states["j"].phase is JobPhase.FORMING


def test_once_the_ranks_may_have_returned_it_is_only_said_that_their_last_states_are_not_trusted() -> None:
    stage = running(ACTS, "abc")
    stage.do("all running gen=1 step=125 snap=90 snapgen=1")
    stage.do("all finished gen=1 step=125 held=125 snap=125 snapgen=1", "stored", "stored")
    assert job(stage).phase is JobPhase.LEAVING
    lines = stage.do(f"replicas 120 90 {DIFFERS}", "stored")
    assert not any(line.startswith(("Kill", "Judged", "Interrupt")) for line in lines), lines
    assert job(stage).phase is JobPhase.LEAVING and "is not trusted" in stage.etcd.states["j"].reason
