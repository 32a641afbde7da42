"""The cluster at its edges: before an election, stale and foreign messages, fencing, what people see."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest

from controlplane.core import view
from controlplane.core.cluster import HANDLERS, PHASES, Cluster
from controlplane.core.lifecycle.differing import differences
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, Failure, JobPhase, JobSpec, MemberPhase, MemberStatus
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import CoreSettings
from tests.core.make import record, spec
from tests.transcripts.language import Play
from tests.wire.test_codec import FROM_AGENTS, sample


def play(*commands: str, settings: CoreSettings | None = None) -> Play:
    stage = Play(settings or CoreSettings())
    stage.do(*commands)
    return stage


def running(
    submit: str = "submit nodes=2 nproc=1", nodes: str = "ab", settings: CoreSettings | None = None
) -> Play:
    """A job of the SDK that trains."""
    hellos = [f"hello {node}" for node in nodes]
    return play(
        "elect", *hellos, submit, "stored", "all starting", "all ready held=-1", "stored",
        "all forming gen=1", "all running gen=1 step=0", "started", "stored",
        settings=settings,
    )  # fmt: skip


def test_every_event_and_every_phase_has_its_handler() -> None:
    assert set(HANDLERS) == set(ev.Event.__args__)
    assert set(PHASES) == set(JobPhase)


def test_before_an_election_nobody_is_admitted_and_nothing_is_decided() -> None:
    cluster = Cluster()
    effects = cluster.step(0.0, ev.NodeJoined("a", 1, "l", "a", 8, 1))
    assert [type(effect) for effect in effects] == [fx.Refuse]
    assert cluster.step(0.0, ev.JobSubmitted(spec())) == []
    assert cluster.counts == {"not_leading": 1}
    assert cluster.next_deadline() == math.inf


def test_an_unknown_event_is_an_error() -> None:
    cluster = Cluster()
    cluster.step(0.0, ev.Elected(1))
    with pytest.raises(KeyError):
        cluster.step(0.0, "nonsense")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FROM_AGENTS)
def test_an_agent_whose_node_was_forgotten_is_told_to_come_anew(kind: type) -> None:
    """Its stream may stand for longer than the leader remembers it."""
    stage = running()
    event = dataclasses.replace(sample(kind), node="gone", incarnation=3)
    effects = stage.cluster.step(stage.now + 1, event)
    stage.cluster.check()
    (refused,) = [each for each in effects if not isinstance(each, fx.Note)]
    assert isinstance(refused, fx.Refuse) and (refused.node, refused.incarnation) == ("gone", 3)
    assert refused.retry and "come anew" in refused.reason


def test_a_fenced_leader_says_nothing_more() -> None:
    stage = play("elect", "hello a")
    ticket = stage.asked[0].ticket
    stage.cluster.step(1.0, ev.StoreFailed(ticket, "another leads", fenced=True))
    assert stage.cluster.step(2.0, ev.JobSubmitted(spec())) == []
    assert stage.cluster.step(99.0, ev.Tick()) == []


def test_stale_messages_are_dropped_and_counted() -> None:
    stage = running()
    cluster, host = stage.cluster, stage.hosts["a"]
    statuses = tuple(host.members.values())
    before = view.jobs(cluster, 0.0)
    cluster.step(0.0, ev.NodeBeat("a", 0, 10**6, 1, ()))
    cluster.step(0.0, ev.NodeBeat("a", 1, 10**6, 1, statuses))
    cluster.step(0.0, ev.NodeBeat("a", 1, 10**6, 1, ()))
    cluster.step(0.0, ev.NodeBeat("nobody", 1, 1, 1, ()))
    cluster.step(0.0, ev.Stored(999))
    cluster.step(0.0, ev.SnapshotReady("a", 1, "j.1000000", "j", 7, 10))
    cluster.step(0.0, ev.MemberStarted("a", 1, "j.1000000", "j", 7, 1, 0.0, 0.0, 0.0))
    cluster.step(0.0, ev.Persisted("a", 1, record(100)))
    cluster.check()
    assert view.jobs(cluster, 0.0) == before
    assert cluster.counts == {
        "stale_incarnation": 2, "stale_beat": 1, "stale_ticket": 1, "refused_checkpoint": 1,
        "refused_word": 2,  # of generation 7, which nobody was given
    }  # fmt: skip


def test_a_late_report_does_not_undo_a_newer_one() -> None:
    stage = running()
    late = stage.hosts["a"].members["j.1000000"]
    stage.do("report j.1000000 running gen=1 step=9")
    stage.cluster.step(0.0, ev.MemberReport("a", 1, 1, dataclasses.replace(late, phase=MemberPhase.READY)))
    row = view.ranks(stage.cluster, 0.0)[0]
    assert (row.phase, row.step) == ("running", 9)
    assert stage.cluster.counts["stale_report"] == 1


def test_a_rank_without_room_that_runs_on_in_one_phase_has_its_missed_checkpoint_told() -> None:
    stage = running("submit nodes=2 nproc=1 storage=file:///c")
    stage.do("report j.1000000 running gen=1 step=129")
    status = stage.hosts["a"].members["j.1000000"]
    told = dataclasses.replace(status, no_room="no arena")
    effects = stage.cluster.step(stage.now, ev.MemberReport("a", 1, 10**6, told))
    outcomes = [(e.outcome, e.reason) for e in effects if isinstance(e, fx.CheckpointChanged)]
    assert outcomes == [("skipped", "rank 0 on a: no arena")]


def test_a_member_of_an_unknown_job_is_left_alone() -> None:
    stage = play("elect")
    stray = MemberStatus("x.1", "x", MemberPhase.RUNNING)
    effects = stage.cluster.step(0.0, ev.NodeJoined("a", 1, "l", "a", 8, 1, (stray,)))
    assert not [effect for effect in effects if isinstance(effect, fx.Kill | fx.Complete)]
    assert stage.cluster.counts == {"stray": 1}


def test_nothing_names_a_generation_before_etcd_holds_it() -> None:
    stage = play("elect", "hello a")
    lines = stage.do("submit nodes=1 nproc=1")
    assert not [line for line in lines if line.startswith("Launch")]
    assert [line for line in stage.do("stored") if line.startswith("Launch")]


def test_a_store_that_failed_is_asked_again_with_the_same_content() -> None:
    stage = play("elect", "hello a", "stored", "submit nodes=1 nproc=1")
    first = stage.asked[0]
    stage.do("refused")
    assert stage.asked == []
    stage.do("wait 1")
    assert stage.asked == [first]


def test_a_job_submitted_twice_goes_on() -> None:
    stage = running()
    assert stage.do("submit nodes=2 nproc=1") == ["Note resubmitted j: the job goes on as it is"]


def test_another_submission_under_the_name_of_a_running_job_is_refused_with_the_difference() -> None:
    stage = running()
    (line,) = stage.do("submit nodes=1 nproc=8")
    assert line == (
        "Note submission_refused j: a job of this name is running with other settings: "
        "nnodes_min is 2, not 1; nnodes_max is 2, not 1; nproc_per_node is 1, not 8"
    )


def test_a_difference_shows_no_secret() -> None:
    runs = JobSpec(
        "j", ("a.py", "--token", "one"), "/", env=(("A", "s1"), ("B", "2")), storage="s3://u:p@b/c"
    )
    given = replace(runs, argv=("a.py", "--token", "two", "x"), env=(("A", "s2"), ("B", "2")), storage="")
    assert differences(runs, runs) == ""
    assert differences(runs, given) == (
        "argv is 'a.py --token (hidden)', not 'a.py --token (hidden) x'; env differs in A; "
        "storage is 's3://(hidden)@b/c', not none"
    )


def test_the_minimum_of_nodes_waits_a_little_for_more() -> None:
    stage = play("elect", "hello a", "submit nodes=1 most=2", "stored")
    assert not [line for line in stage.do("wait 9") if "generation" in line]
    assert [line for line in stage.do("wait 2") if "storing" in line]
    eager = play("elect", "hello a", "submit nodes=1 most=2")
    assert [line for line in eager.do("hello b") if "storing" in line]


def test_an_order_that_fails_is_the_end_of_its_member() -> None:
    stage = running()
    failure = Failure(Cause.LAUNCH_FAILED, "fork: out of memory")
    effects = stage.cluster.step(0.0, ev.OrderFailed("b", 1, "j", "j.1000001", failure))
    judged = [effect for effect in effects if isinstance(effect, fx.Judged)]
    assert [(j.verdict.cause, j.verdict.ranks) for j in judged] == [(Cause.LAUNCH_FAILED, (1,))]


def test_a_broken_collective_waits_for_the_dead_and_then_re_forms() -> None:
    stage = running()
    stage.do('report j.1000000 running gen=1 step=4 cause=broken message="connection reset"')
    assert not [line for line in stage.do("wait 5") if line.startswith("Judged")]
    lines = stage.do("wait 2")
    assert [line for line in lines if line.startswith("Judged job/broken ranks=() reform")]
    stage.do("all ready held=4 gen=1")
    assert "Form a #2[0:j.1000000@a 1:j.1000001@b]" in stage.do("stored")


def test_a_dead_peer_explains_a_broken_collective_at_once() -> None:
    stage = running()
    stage.do('report j.1000000 running gen=1 step=4 cause=broken message="connection reset"')
    lines = stage.do("report j.1000001 exited cause=signaled signal=9")
    assert [line for line in lines if line.startswith("Judged rank/signaled ranks=(1,)")]


def test_leaving_early_with_code_0_is_a_failure() -> None:
    stage = running()
    lines = stage.do("report j.1000001 exited cause=exited code=0")
    assert [line for line in lines if line.startswith("Judged rank/exited") and "left early" in line]


def test_a_device_report_is_noted_and_shown() -> None:
    stage = play("elect", "hello a")
    effects = stage.cluster.step(0.0, ev.DeviceReport("a", 1, "cuda:0", False, "XID 79"))
    assert effects == [fx.Note(NoteKind.DEVICE_UNHEALTHY, "a/cuda:0", "XID 79")]
    assert view.nodes(stage.cluster, 0.0)[0].reason == "cuda:0: XID 79"


def test_what_people_see() -> None:
    stage = running("submit nodes=2 nproc=1 spares=1")
    stage.do("report j.1000000 running gen=1 step=5")
    stage.do("report j.1000001 running gen=1 step=6")
    job = view.jobs(stage.cluster, 1.0)[0]
    assert (job.phase, job.generation, job.world_size, job.step, job.argv) == ("running", 1, 2, 5, "train.py")
    ranks = view.ranks(stage.cluster, 1.0)
    assert [(row.rank, row.node, row.role) for row in ranks][:2] == [(0, "a", "rank"), (1, "b", "rank")]
    nodes = view.nodes(stage.cluster, 1.0)
    assert [(node.node, node.state, node.slots) for node in nodes] == [("a", "up", 8), ("b", "up", 8)]
    assert view.checkpoints(stage.cluster, 1.0) == ()
    assert view.incidents(stage.cluster, 1.0) == ()
