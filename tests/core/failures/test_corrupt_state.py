"""What follows from replicas that differ: a report, or a way back to what they held alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.analysis import replicas
from controlplane.core.checkpoint import commit, suspects
from controlplane.core.failures import numeric_anomalies
from controlplane.core.placement.formation import impossible
from controlplane.core.records import effects as fx
from controlplane.core.records.checkpoint_events import Published
from controlplane.core.records.model import Fault, JobPhase, JobSpec, Tier
from tests.core.make import spec
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.records.model import Resume
    from tests.transcripts.language import Play

ACTS = "submit nodes=3 nproc=1 check=10 on_corrupt=act skip=1"
DIFFERS = "replicas 40 30 ranks=0,1,2 odd=1"


def trained(submit: str) -> Play:
    """A job of three ranks with 45 steps, and snapshots of 20 and 30 steps."""
    stage = running(submit, "abc")
    stage.do("all running gen=1 step=25 snap=20 snapgen=1")
    stage.do("all running gen=1 step=45 snap=30 snapgen=1")
    return stage


def test_only_reported_nothing_stops() -> None:
    stage = trained("submit nodes=3 nproc=1 check=10")
    lines = stage.do(DIFFERS)
    job = stage.cluster.state.jobs["j"]
    assert (job.phase, job.numbers.faults) == (JobPhase.RUNNING, ())
    assert job.numbers.suspect_states == (Fault(31, 1, corrupt=True),), "marked, and nothing else"
    assert any("state_corrupt" in line and "rank 1 of 3 replicas differ in" in line for line in lines)
    assert job.numbers.dispute is not None
    assert [seat.node for seat in job.numbers.dispute.odd_seats] == ["b"]
    assert not any("state_corrupt" in line for line in stage.do(DIFFERS)), "the same report of another rank"


def test_the_odd_rank_is_replaced_and_all_go_back_to_what_was_alike() -> None:
    stage = trained(ACTS)
    lines = stage.do(DIFFERS)
    job = stage.cluster.state.jobs["j"]
    assert job.numbers.faults == (Fault(31, 1, corrupt=True),)
    kinds = [line.split()[0] for line in lines]
    assert kinds.index("Store") < kinds.index("Judged"), "kept for the next leader before anybody hears of it"
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=(1,) rollback drop=j.1000001" in judged
    assert any(line.startswith("Kill b j.1000001") for line in lines)
    assert stage.do(f"{DIFFERS} on=j.1000002") == [], "the same, of another rank"
    resume = restored(stage)
    assert (resume.step, resume.tier) == (30, Tier.MEMORY) and resume.skip == (), "no data is to blame"


def restored(stage: Play) -> Resume:
    for line in (
        "report j.1000001 exited cause=signaled signal=9",
        "stored",
        "report j.1000003 starting",
        "report j.1000003 ready held=-1",
        "report j.1000000 ready held=40 gen=1",
        "report j.1000002 ready held=40 gen=1",
        "stored",
    ):
        stage.do(line)
    generation = stage.cluster.state.jobs["j"].generation
    assert generation is not None and generation.number == 2
    return generation.resume


def test_ranks_that_hold_parts_of_one_replica_are_not_all_blamed() -> None:
    """One damaged gradient of a tensor-parallel replica, or of a sharded one whose norm is clipped, is in the
    state of all its ranks after the optimizer's step: healthy devices must not be excluded."""
    stage = running("submit nodes=6 nproc=1 tp=2 check=10 on_corrupt=act", "abcdef")
    for rank in range(6):
        stage.do(f"report j.100000{rank} running gen=1 step=25 snap=20 snapgen=1 shard=part{rank % 2}")
    stage.do("all running gen=1 step=45 snap=30 snapgen=1")
    lines = stage.do("replicas 40 30 ranks=0,1,2,3,4,5 odd=2,3")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=() rollback drop=- add=-" in judged
    assert not any(line.startswith("Kill") for line in lines)
    dispute = stage.cluster.state.jobs["j"].numbers.dispute
    assert dispute is not None
    (finding,) = replicas.findings(dispute)
    assert (finding.subject, dict(finding.place)) == ("one of ranks 2, 3", {"node": None, "rank": None})
    assert "differ from 4 others that agree" in finding.reason and "none has a majority" not in finding.reason


def test_two_odd_ranks_that_hold_the_same_are_both_blamed() -> None:
    stage = running("submit nodes=5 nproc=1 check=10", "abcde")
    stage.do("all running gen=1 step=45 snap=30 snapgen=1 shard=all")
    stage.do("replicas 40 30 ranks=0,1,2,3,4 odd=1,3")
    dispute = stage.cluster.state.jobs["j"].numbers.dispute
    assert dispute is not None
    assert [dict(each.place)["rank"] for each in replicas.findings(dispute)] == [1, 3]


def test_without_a_majority_all_go_back_and_nobody_is_replaced() -> None:
    stage = trained(ACTS)
    lines = stage.do("replicas 40 30 ranks=0,1")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=() rollback drop=- add=-" in judged
    assert not any(line.startswith("Kill") for line in lines)


def test_buffers_are_never_acted_on() -> None:
    stage = trained(ACTS)
    stage.do(f"{DIFFERS} buffers=yes")
    job = stage.cluster.state.jobs["j"]
    assert job.phase is JobPhase.RUNNING and not job.numbers.faults and job.numbers.dispute is not None


@pytest.mark.parametrize(
    "line",
    ["replicas 40 30 ranks=0,1,3 odd=3", "replicas 40 30 ranks=0,1,2 odd=9", f"{DIFFERS} gen=2"],
)
def test_reports_that_cannot_be_true_change_nothing(line: str) -> None:
    stage = trained(ACTS)
    stage.do(line)
    job = stage.cluster.state.jobs["j"]
    assert (job.phase, job.numbers.faults, job.numbers.dispute) == (JobPhase.RUNNING, (), None)


def test_states_since_the_last_agreement_are_not_trusted_nor_are_checkpoints() -> None:
    stage = trained(ACTS)
    stage.do(DIFFERS)
    job = stage.cluster.state.jobs["j"]
    assert not numeric_anomalies.speaks_against(job, 30, 1)
    assert numeric_anomalies.speaks_against(job, 31, 1) and numeric_anomalies.speaks_against(job, 40, 1)
    assert not numeric_anomalies.speaks_against(job, 40, 2), "computed again, from what was alike"


def suspected() -> tuple[Play, list[str]]:
    """Checkpoint 100-1 was committed before replicas were found to differ; 90 was the last step alike."""
    stage = running(f"{ACTS} storage=file:///s", "abc")
    stage.do("all running gen=1 step=101 snap=100 snapgen=1")
    for line in ("snapshot 100", "parts", "persisted", "stored", "published", "stored"):
        stage.do(line)
    assert not stage.cluster.state.jobs["j"].checkpoints.records["100-1"].bad
    stage.do("all running gen=1 step=125")
    return stage, stage.do("replicas 120 90 ranks=0,1,2 odd=1") + stage.do("stored")


def test_a_suspect_checkpoint_is_marked_on_the_storage_until_an_agent_has_done_it() -> None:
    stage, lines = suspected()
    job = stage.cluster.state.jobs["j"]
    record = job.checkpoints.records["100-1"]
    assert "replicas differ" in record.bad
    (order,) = [line for line in lines if line.startswith("Publish")]
    assert order == "Publish c 100-1 as suspect"
    assert not stage.last[fx.Publish].record.manifest_digest, (
        "an agent of a version before must not publish it"
    )
    node = stage.hosts["c"]
    assert "100-1" not in job.checkpoints.marked
    stage.feed(Published("c", node.incarnation, "j", "100-1", understood=True))
    assert "100-1" in job.checkpoints.marked
    assert job.checkpoints.marking is None
    assert not any(line.startswith("Publish") for line in stage.do("wait 60"))


def test_one_that_became_visible_before_the_leader_knew_is_marked_too() -> None:
    """The agent has published it, and its answer comes after the replicas were found to differ."""
    stage = running(f"{ACTS} storage=file:///s", "abc")
    stage.do("all running gen=1 step=101 snap=100 snapgen=1")
    for line in ("snapshot 100", "parts", "persisted", "stored", "all running gen=1 step=125"):
        stage.do(line)
    lines = stage.do("replicas 120 90 ranks=0,1,2 odd=1") + stage.do("stored")
    record = stage.cluster.state.jobs["j"].checkpoints.records["100-1"]
    assert record.bad and not record.published
    assert "Publish c 100-1 as suspect" in lines
    life, checkpoints = stage.hosts["c"].incarnation, stage.cluster.state.jobs["j"].checkpoints
    stage.feed(Published("c", life, "j", "100-1"))
    assert "100-1" not in checkpoints.marked, "that is the answer about the manifest"
    stage.feed(Published("c", life, "j", "100-1", understood=True))
    assert "100-1" in checkpoints.marked


def test_what_retention_deletes_is_not_marked() -> None:
    stage, _ = suspected()
    job = stage.cluster.state.jobs["j"]
    assert job.checkpoints.marking == ("100-1", "c")
    job.checkpoints.records["100-1"] = commit.as_bad(job.checkpoints.records["100-1"], commit.RETIRED)
    suspects.reconcile(stage.cluster.state, job)
    assert job.checkpoints.marking is None


def test_what_is_not_covered_is_noted_once() -> None:
    stage = trained(ACTS)
    assert stage.do("replicas 40 40") == []
    (line,) = stage.do("replicas 50 50 uncovered=model")
    assert line == "Note state_uncovered j: no replica of model"
    assert stage.do("replicas 60 60 uncovered=model") == []


RUNS = f"{DIFFERS} replay=running"
NOT_AGAIN = f"{DIFFERS} replay=done passes=seen:0:a,b,a;again:0:a,a,a;again:0:a,a,a"
FOLLOWS = (
    f"{DIFFERS} replay=done passes=seen:0:a,b,a;again:0:a,b,a;again:0:a,b,a;"
    "exchanged:1:b,a,a;exchanged:2:a,a,b"
)


def test_while_the_steps_run_again_nothing_is_done_but_to_distrust_what_was_computed() -> None:
    stage = trained(ACTS)
    lines = stage.do(RUNS)
    job = stage.cluster.state.jobs["j"]
    assert any(line.startswith("Store") for line in lines), "the next leader must know"
    assert job.numbers.faults == (Fault(31, 1, corrupt=True),) and job.phase is JobPhase.RUNNING
    assert not any(line.startswith(("Kill", "Judged", "Interrupt")) for line in lines)
    assert stage.do(f"{RUNS} on=j.1000002") == [] and stage.do("wait 1") is not None
    assert job.phase is JobPhase.RUNNING


def test_hardware_is_excluded_and_its_rank_replaced() -> None:
    stage = trained(ACTS)
    stage.do(RUNS)
    lines = stage.do(NOT_AGAIN)
    assert any("state_judged j: hardware: the same steps" in line for line in lines)
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=(1,) rollback drop=j.1000001" in judged
    assert any("device_" in line and "b/device0" in line for line in lines), lines
    assert stage.do(f"{NOT_AGAIN} on=j.1000002") == [], "the same, of another rank"
    assert restored(stage).step == 30


def test_what_the_script_does_itself_stops_the_job_and_blames_no_device() -> None:
    stage = trained(ACTS)
    stage.do(RUNS)
    lines = stage.do(FOLLOWS)
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " stop " in judged and "the script itself makes replicas of the state differ" in judged
    assert not any("device_" in line for line in lines)
    job = stage.cluster.state.jobs["j"]
    assert job.numbers.faults[-1] == Fault(31, 1, stop=True, corrupt=True), "also for the next leader"


def test_what_a_replay_cannot_decide_is_treated_as_without_one() -> None:
    stage = trained(ACTS)
    stage.do(RUNS)
    lines = stage.do(f"{DIFFERS} replay=done passes=seen:0:a,b,a;again:0:a,b,a;again:0:a,a,a")
    assert any("state_judged j: unknown: the same steps gave other bits" in line for line in lines)
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=(1,) rollback drop=j.1000001" in judged


def test_without_a_step_function_the_job_acts_at_once() -> None:
    stage = trained(ACTS)
    lines = stage.do(f"{DIFFERS} replay=no_step_function")
    assert any("state_judged j: unknown: the script declares no step function" in line for line in lines)
    assert any("rollback drop=j.1000001" in line for line in lines)


def test_a_death_within_the_replay_leaves_the_odd_rank_replaced_all_the_same() -> None:
    stage = trained(ACTS)
    stage.do(RUNS)
    lines = stage.do("report j.1000002 exited cause=signaled signal=9")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "j.1000001" in judged and "j.1000002" in judged
    dispute = stage.cluster.state.jobs["j"].numbers.dispute
    assert dispute is not None and (dispute.awaits, dispute.answer.why) == (False, "running")


def test_of_two_replicas_the_one_that_a_replay_shows_to_be_wrong_is_replaced() -> None:
    stage = running("submit nodes=2 nproc=1 check=10 on_corrupt=act skip=1", "ab")
    stage.do("all running gen=1 step=45 snap=30 snapgen=1")
    stage.do("replicas 40 30 ranks=0,1 replay=running")
    lines = stage.do("replicas 40 30 ranks=0,1 replay=done passes=seen:0:b,a;again:0:a,a;again:0:a,a")
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert "ranks=(0,) rollback drop=j.1000000" in judged


def test_a_next_leader_does_not_wait_for_the_replay() -> None:
    stage = trained(ACTS)
    stage.do(RUNS)
    for line in ("stored", "crash", "elect", "hello a", "hello b", "hello c"):
        lines = stage.do(line)
    (judged,) = [line for line in lines if line.startswith("Judged")]
    assert " rollback " in judged, lines


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"check_replicas_every": -1}, "--check-replicas-every -1"),
        ({"on_corrupt_state": "panic"}, "--on-corrupt-state panic"),
        ({"on_corrupt_state": "act"}, "must follow a check"),
        ({"on_corrupt_state": "act", "check_replicas_every": 4}, "must follow a check"),
    ],
)
def test_jobs_that_no_cluster_could_run(changes: dict[str, object], words: str) -> None:
    found: JobSpec = spec(**changes)
    assert words in impossible(found)
    assert not impossible(spec(check_replicas_every=5, on_corrupt_state="act"))
