"""People pause a job, resume it, and ask for a checkpoint now: at any moment, twice, and across leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Strategy
from tests.core.elasticity.test_elastic import notes
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

STORAGE = "submit nodes=2 nproc=1 storage=file:///c"


def pause(stage: Play, on: bool = True, job: str = "j", reason: str = "a talk") -> list[str]:
    stage.lines = []
    stage.feed(ev.PauseRequested(job, on, reason))
    return stage.lines


def wanted(stage: Play, job: str = "j") -> list[str]:
    stage.lines = []
    stage.feed(ev.CheckpointWanted(job, "a talk"))
    return stage.lines


def phase(stage: Play) -> str:
    (row,) = view.jobs(stage.cluster, stage.now)
    return row.phase


def at_rest(submit: str = "submit nodes=2 nproc=1") -> Play:
    """A job that trained to step 50, and was paused."""
    stage = running(submit)
    stage.do("all running gen=1 step=50")
    pause(stage)
    stage.do("stored")
    stage.do("all ready held=50 gen=1")
    stage.do("stored")
    assert phase(stage) == "paused"
    return stage


def resumed(stage: Play, generation: int = 2) -> None:
    """It goes on, from the state that its ranks hold."""
    pause(stage, False)
    stage.do("stored")
    stage.do("stored")
    made = stage.etcd.generations["j"]
    assert (made.number, made.resume.tier, made.resume.step) == (generation, "donor", 50)
    assert "paused" in made.reason
    stage.do(f"all forming gen={generation}")
    stage.do(f"all running gen={generation} step=50")
    assert phase(stage) == "running"


def test_a_pause_ends_each_step_and_nobody_is_interrupted_in_it() -> None:
    stage = running()
    stage.do("all running gen=1 step=50")
    lines = pause(stage)
    orders = [line for line in lines if line.startswith("Interrupt")]
    assert len(orders) == 2 and all("gently" in line for line in orders), lines
    assert [line for line in lines if line.startswith("Judged")] and phase(stage) == "stopping"
    stage.do("all ready held=50 gen=1")
    incidents = stage.cluster.incidents
    assert [each.plan.strategy for each in incidents] == [Strategy.PAUSE]
    assert phase(stage) == "paused"
    stage.do("stored")
    assert stage.etcd.states["j"].pause == "a talk" and stage.etcd.states["j"].phase == "paused"
    for _ in range(5):
        assert not [line for line in stage.do("live 30") if line.startswith(("Form", "Kill", "Judged"))]
    resumed(stage)
    assert stage.etcd.states["j"].pause == ""


def test_paused_twice_and_resumed_twice_is_once() -> None:
    stage = at_rest()
    assert notes(pause(stage, reason="again")) == ["pausing j: already: a talk"]
    resumed(stage)
    assert notes(pause(stage, False)) == ["resumed j: already: it is not paused"]


def test_a_pause_that_is_taken_back_before_everybody_stands() -> None:
    stage = running()
    stage.do("all running gen=1 step=50")
    pause(stage)
    stage.do("report j.1000000 ready held=50 gen=1")
    pause(stage, False)
    stage.do("stored")
    stage.do("all ready held=50 gen=1")
    stage.do("stored")
    assert stage.etcd.generations["j"].number == 2 and phase(stage) == "forming"


def test_a_rank_that_dies_while_all_rest_is_replaced_and_the_job_stays_paused() -> None:
    stage = at_rest()
    stage.do("report j.1000001 exited cause=signaled signal=9")
    assert phase(stage) == "stopping"
    stage.do("report j.1000002 ready held=-1")
    stage.do("stored")
    assert phase(stage) == "paused"
    resumed(stage)


def test_a_node_that_goes_while_all_rest_parks_it_and_comes_back() -> None:
    stage = at_rest()
    stage.do("lose b")
    stage.do("live 40 b")
    assert phase(stage) == "parked"
    stage.do("hello b launcher=b-2 incarnation=2")
    stage.do("report j.1000002 ready held=-1")
    assert phase(stage) == "paused"


def in_shards(storage: str = "") -> Play:
    """A job of two ranks that each hold a shard; it is asked to pause."""
    stage = play(
        "elect", "hello a peer=a:7", "hello b peer=b:7", f"submit nodes=2 nproc=1{storage}", "stored"
    )
    stage.do("all starting", "all ready held=-1", "stored")
    for rank, word in enumerate(("left", "right")):
        stage.do(f"report j.100000{rank} forming gen=1 shard={word} bytes=100")
    stage.do("all running gen=1 step=0")
    stage.do("started")
    stage.do("all running gen=1 step=50")
    lines = pause(stage)
    orders = [line for line in lines if line.startswith("Interrupt")]
    assert len(orders) == 2 and stage.last[fx.Interrupt].keep and stage.last[fx.Interrupt].gentle
    return stage


@pytest.mark.parametrize("storage", ["", " storage=file:///c"])
def test_state_in_shards_is_kept_at_the_boundary_where_a_job_rests(storage: str) -> None:
    stage = in_shards(storage)
    for rank, word in enumerate(("left", "right")):
        stage.do(f"report j.100000{rank} ready held=50 gen=1 heldgen=1 shard={word} snap=50 snapgen=1")
    stage.do("stored")
    lines = stage.do("live 5")
    if storage:
        assert [line for line in lines if line.startswith("Persist")] or stage.etcd.checkpoints, lines
    assert phase(stage) == "paused", stage.lines
    assert stage.cluster.state.jobs["j"].snapshots.released == 50


def test_a_pause_waits_no_longer_than_it_may_for_a_snapshot_that_cannot_be() -> None:
    stage = in_shards()
    for rank, word in enumerate(("left", "right")):
        stage.do(f"report j.100000{rank} ready held=50 gen=1 heldgen=1 shard={word}")
    assert phase(stage) != "paused"
    lines = stage.do("live 900")
    assert phase(stage) == "paused"
    assert [line for line in notes(lines) if line.startswith("resize_unsaved j: step 50")], lines


def test_a_failure_comes_first_and_the_pause_after_it() -> None:
    stage = running()
    stage.do("report j.1000001 exited cause=signaled signal=9")
    assert notes(pause(stage)) == ["pausing j: a talk"]
    stage.do("report j.1000000 ready held=50 gen=1", "report j.1000002 ready held=-1", "stored")
    assert phase(stage) == "paused", "everybody stands at the barrier: nobody is made to train first"


def test_the_next_leader_keeps_it_paused() -> None:
    stage = at_rest()
    stage.do("crash")
    stage.do("elect")
    for node in "ab":
        stage.do(f"hello {node}")
    lines = [*stage.do("beat a"), *stage.do("beat b"), *stage.do("live 20")]
    assert phase(stage) == "paused" and not [line for line in lines if line.startswith(("Form", "Kill"))]
    resumed(stage)


def test_a_leader_that_dies_before_everybody_stands_is_followed_by_one_that_pauses() -> None:
    stage = running()
    stage.do("all running gen=1 step=50")
    pause(stage)
    stage.do("stored")
    stage.do("crash")
    stage.do("elect")
    for node in "ab":
        stage.do(f"hello {node}")
    stage.do("all running gen=1 step=51")
    assert phase(stage) == "stopping"
    stage.do("all ready held=51 gen=1")
    assert phase(stage) == "paused"


def test_a_paused_job_can_be_stopped() -> None:
    stage = at_rest()
    lines = [*stage.do("stop enough"), *stage.do("stored")]
    assert sum(line.startswith("Complete") for line in lines) == 2 and phase(stage) == "stopped"
    assert notes(pause(stage)) == ["pause_refused j: the job is at its end"]


def test_what_cannot_be_paused_is_said() -> None:
    stage = play("elect", "hello a")
    assert notes(pause(stage, job="x")) == ["pause_refused x: there is no job of this name"]
    plain = play(
        "elect", "hello a", "submit nodes=1 nproc=1", "stored", "wait 10", "stored", "all starting", "live 30"
    )
    (refused,) = notes(pause(plain))
    assert "does not use the SDK" in refused


def test_a_checkpoint_now_is_of_the_newest_whole_snapshot() -> None:
    stage = running(STORAGE)
    for step in (10, 20):
        stage.do(f"all running gen=1 step={step}")
        stage.do(f"snapshot {step}")
    lines = wanted(stage)
    assert notes(lines) == ["checkpoint_begun j: 20-1"]
    assert [line for line in lines if line.startswith("Persist")]
    stage.do("persisted")
    stage.do("stored")
    stage.do("published")
    assert stage.etcd.checkpoints["j", "20-1"].step == 20
    assert notes(wanted(stage))[0].startswith("checkpoint_waits j")
    stage.do("all running gen=1 step=30")
    assert [line for line in stage.do("snapshot 30") if line.startswith("Persist")], "the next one is taken"
    stage.do("persisted")
    stage.do("stored")
    stage.do("published")
    stage.do("all running gen=1 step=40")
    assert not [line for line in stage.do("snapshot 40") if line.startswith("Persist")], "and none after it"


@pytest.mark.parametrize(
    ("submit", "job", "why"),
    [("submit nodes=2 nproc=1", "j", "no storage"), (STORAGE, "x", "no job of this name")],
)
def test_a_checkpoint_that_cannot_be_is_refused(submit: str, job: str, why: str) -> None:
    stage = running(submit)
    (refused,) = notes(wanted(stage, job))
    assert refused.startswith("checkpoint_refused") and why in refused


def test_a_pause_during_a_commit_loses_no_checkpoint() -> None:
    stage = running(STORAGE)
    stage.do("all running gen=1 step=20")
    stage.do("snapshot 20")
    wanted(stage)
    pause(stage)
    stage.do("persisted")
    stage.do("all ready held=25 gen=1")
    stage.do("stored")
    stage.do("published")
    stage.do("stored")
    assert phase(stage) == "paused"
    record = stage.etcd.checkpoints["j", "20-1"]
    assert isinstance(stage.last[fx.Publish], fx.Publish) and record.step == 20
