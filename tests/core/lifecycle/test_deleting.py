"""People delete jobs: only when nothing of them is left but checkpoints, and for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from tests.core.elasticity.test_elastic import notes
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

STORAGE = "submit nodes=2 nproc=1 storage=file:///c"


def delete(stage: Play, job: str = "j") -> list[str]:
    """The notes that answer it."""
    stage.lines = []
    stage.feed(ev.JobDeleteRequested(job, "by hand"))
    return notes(stage.lines)


def stopped(submit: str = "submit nodes=2 nproc=1") -> Play:
    stage = running(submit)
    stage.do("all running gen=1 step=50", "stop enough", "stored", "all exited code=0")
    return stage


def test_a_deleted_job_is_gone_also_for_the_next_leader() -> None:
    stage = stopped()
    assert delete(stage) == ["job_deleted j: it has no checkpoints"]
    assert not view.jobs(stage.cluster, stage.now)
    stage.do("stored")
    assert not stage.etcd.specs and not stage.etcd.states and not stage.etcd.generations
    assert not stage.cluster.state.write_queues
    stage.do("live 60")
    assert delete(stage) == ["delete_refused j: there is no job of this name"]
    stage.do("crash", "elect")
    assert not view.jobs(stage.cluster, stage.now)


def test_one_that_has_not_ended_is_refused_and_trains_on() -> None:
    stage = running()
    stage.do("all running gen=1 step=50")
    assert delete(stage) == ["delete_refused j: it is running: end it first, with `holdfast stop j`"]
    stage.do("stop enough")
    assert "it is about to end" in delete(stage)[0]
    stage.do("stored")
    (refused,) = delete(stage)
    assert "still being removed on a, b: try again" in refused
    stage.do("all exited code=0")
    assert delete(stage) == ["job_deleted j: it has no checkpoints"]


def test_what_stays_is_named() -> None:
    stage = running(STORAGE)
    stage.do("all running gen=1 step=50 snap=50 snapgen=1", "snapshot 50", "stored")
    stage.feed(ev.CheckpointWanted("j", "a talk"))
    stage.do("parts", "persisted", "stored", "published", "stored")
    assert stage.etcd.checkpoints
    stage.do("stop enough", "stored", "all exited code=0")
    (said,) = delete(stage)
    assert "1 checkpoint stays in jobs/j of file:///c (newest: 50-1)" in said
    assert "`holdfast checkpoint adopt` comes before it is submitted" in said
    stage.do("stored")
    assert not stage.etcd.checkpoints and not any("/jobs/j/" in key for key in stage.etcd.values)


def test_the_next_job_of_the_name_begins_anew_behind_the_deletion() -> None:
    stage = stopped()
    delete(stage)
    stage.do("submit nodes=2 nproc=1")
    queue = [type(each.effect) for each in stage.cluster.state.write_queues["job/j"]]
    assert queue[:2] == [fx.ForgetJob, fx.StoreJob], "the new job is written behind the deletion"
    stage.do("stored", "stored", "stored")
    job = stage.cluster.state.jobs["j"]
    assert job.phase is not JobPhase.STOPPED and stage.etcd.specs["j"] == job.spec
    assert job.generations.number <= 1


@pytest.mark.parametrize("answer", ["refused", "stored"])
def test_a_deletion_that_etcd_did_not_take_is_tried_again(answer: str) -> None:
    stage = stopped()
    delete(stage)
    stage.do(answer)
    assert bool(stage.etcd.specs) is (answer == "refused")
    stage.do("live 5", "stored")
    assert not stage.etcd.specs and not stage.etcd.states


def test_a_job_that_nobody_has_submitted_is_refused() -> None:
    stage = play("elect", "hello a")
    assert delete(stage, "x") == ["delete_refused x: there is no job of this name"]
