"""What people ask for at the wrong moment: twice, too late, of what is gone; two jobs that want one node."""

from __future__ import annotations

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from tests.core.elasticity.test_elastic import notes
from tests.core.make import spec
from tests.core.test_cluster import play, running


def test_a_drain_asked_for_twice_is_one_with_the_earlier_deadline() -> None:
    stage = running("submit nodes=2 most=2 nproc=1", "abc")
    stage.do("drain b deadline=60")
    lines = stage.do("drain b deadline=600")
    assert notes(lines)[-1] == "draining b: maintenance; until 60 s from now"
    assert len([each for each in stage.cluster.state.jobs["j"].members.values() if each.node == "c"]) == 1


def test_a_drain_that_is_taken_back_leaves_the_ranks_where_they_are() -> None:
    stage = running("submit nodes=2 most=2 nproc=1", "abc")
    stage.do("drain b deadline=600")
    stage.do("uncordon b")
    stage.do("stored")
    lines = [line for _ in range(3) for line in stage.do("beat a", "beat b", "wait 10")]
    assert not [line for line in lines if line.startswith(("Judged", "Interrupt", "Kill"))]
    assert [seat.node for seat in stage.cluster.state.jobs["j"].seats] == ["a", "b"]
    assert "b" not in stage.cluster.state.nodes["b"].cordoned


def test_a_drain_of_a_node_that_is_lost_already_moves_nothing_twice() -> None:
    stage = running("submit nodes=2 most=2 nproc=1", "abc")
    stage.do("lose b")
    for _ in range(4):
        stage.do("beat a"), stage.do("beat c"), stage.do("wait 10")
    before = [seat.node for seat in stage.cluster.state.jobs["j"].seats]
    assert before == ["a", "c"]
    lines = stage.do("drain b deadline=60")
    assert not [line for line in lines if line.startswith(("Judged", "Interrupt", "Kill"))]
    assert [seat.node for seat in stage.cluster.state.jobs["j"].seats] == before


def test_commands_about_a_job_that_is_over_are_told_so() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("report j.1000000 finished gen=1 held=9 step=9")
    stage.do("stored")
    assert view.jobs(stage.cluster, 0.0)[0].phase == "leaving"
    stage.do("report j.1000000 exited")
    stage.do("stored")
    assert view.jobs(stage.cluster, 0.0)[0].phase == "finished"
    again = stage.cluster.step(stage.now, ev.JobSubmitted(stage.cluster.state.jobs["j"].spec))
    told = [effect.reason for effect in again if isinstance(effect, fx.Note)]
    assert told == ["the job is finished already"]
    for _ in range(2):
        effects = stage.cluster.step(stage.now, ev.JobStopRequested("j", "too late"))
        assert not [effect for effect in effects if isinstance(effect, fx.Kill | fx.Complete | fx.JobChanged)]


def test_two_jobs_want_one_node_and_the_second_gets_it_when_the_first_is_over() -> None:
    stage = play("elect", "hello a", "submit nodes=1 nproc=1", "stored", "all starting", "stored")
    stage.feed(ev.JobSubmitted(spec(job="k")))
    assert view.jobs(stage.cluster, 0.0)[1].reason.endswith("another job holds a")
    stage.do("report j.1000000 exited")
    stage.do("stored")
    stage.do("beat a")
    stage.do("wait 10")
    assert stage.cluster.state.jobs["k"].phase.value in ("storing", "launching")
    assert view.jobs(stage.cluster, 0.0)[0].phase == "finished"
