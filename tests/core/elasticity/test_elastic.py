"""The job that shrinks, grows, moves and is drained: at its edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core import view
from controlplane.core.placement import formation
from controlplane.core.placement.formation import Capacity
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from tests.core.make import spec
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def alone() -> Play:
    """A job of the SDK that trains on one node, and could have two."""
    return play(
        "elect", "hello a", "submit nodes=1 most=2 nproc=1", "stored", "wait 10", "stored", "all starting",
        "all ready held=-1", "stored", "all running gen=1 step=0", "started", "stored",
    )  # fmt: skip


def test_a_rank_that_moves_away_is_no_spare_that_died() -> None:
    """A node that was drained a few times would get no spares any more: "they died too often"."""
    stage = play(
        "elect", "hello a", "hello b", "hello c slots=1", "submit nodes=2 nproc=1", "stored", "all starting",
        "all ready held=-1", "stored", "all running gen=1 step=0", "started", "stored", "drain b deadline=60",
        "stored", "report j.1000002 starting", "all running gen=1 step=50", "report j.1000002 ready held=-1",
        "report j.1000000 ready held=51 gen=1", "report j.1000001 ready held=51 gen=1", "stored",
        "report j.1000002 running gen=2 step=51", "report j.1000000 running gen=2 step=51", "started",
        "stored", "report j.1000001 exited cause=exited code=0",
    )  # fmt: skip
    job = stage.cluster.state.jobs["j"]
    assert job.members["j.1000001"].dead and job.recovery.spare_failures == {}


def notes(lines: list[str]) -> list[str]:
    return [line.removeprefix("Note ") for line in lines if line.startswith("Note ")]


@pytest.mark.parametrize(
    ("nodes", "replica", "gone", "left"),
    [
        ("abc", 1, "b", "ac"),
        ("abcd", 2, "b", "cd"),
        ("abcd", 2, "bc", "ad"),  # both replicas are broken: their halves make one
        ("abcd", 2, "bd", ""),  # nobody is left who held the second half
        ("abcdef", 2, "af", "ebcd"),
        ("abc", 3, "c", ""),
    ],
)
def test_replicas_stand_or_fall_together(nodes: str, replica: int, gone: str, left: str) -> None:
    found = formation.whole_replicas(list(nodes), replica, list(gone))
    assert sorted(found) == sorted(left)
    for place in range(0, len(found), replica):
        row = found[place : place + replica]
        assert [nodes.index(node) % replica for node in row] == list(range(replica)), "each in its own place"


@pytest.mark.parametrize(
    ("least", "most", "replica", "have", "usable"),
    [(2, 4, 1, 3, 3), (2, 4, 1, 9, 4), (2, 4, 1, 1, 0), (2, 6, 2, 5, 4), (3, 6, 2, 3, 0), (1, 1, 1, 1, 1)],
)
def test_how_many_nodes_can_be_used(least: int, most: int, replica: int, have: int, usable: int) -> None:
    job = spec(nnodes_min=least, nnodes_max=most, replica_nodes=replica)
    assert formation.usable(job, have) == usable


def test_a_range_without_a_whole_replica_is_refused() -> None:
    assert "--replica-nodes 4" in formation.impossible(spec(nnodes_min=5, nnodes_max=7, replica_nodes=4))


def test_what_bars_a_node_is_said() -> None:
    rooms = [
        Capacity("a", 8, True, "cordoned: a fan"),
        Capacity("b", 8, True, places=(0,)),
        Capacity("c", 8, False),
    ]
    assert formation.fitting(spec(nproc_per_node=2), rooms) == []
    reason = formation.shortage(spec(nproc_per_node=2), rooms, 1)
    assert "a (cordoned: a fan)" in reason and "b (1)" in reason and "another job holds c" in reason


def test_a_job_of_one_size_parks() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("lose b")
    lines = [line for _ in range(5) for line in stage.do("beat a", "wait 15")]
    assert not [line for line in lines if " shrink " in line]
    assert view.jobs(stage.cluster, 0.0)[0].phase in ("stopping", "parked")


REPLICAS = "submit nodes=2 most=4 replica=2 nproc=1"
LEFT = "layout dp 1, it was dp 2: data parallel gives way, replicas of 2 ranks stay whole"


@pytest.mark.parametrize("trouble", ["lose b", "drain b"])
def test_a_shrink_says_which_layout_is_left_and_why(trouble: str) -> None:
    stage = running(REPLICAS, "abcd")
    lines = stage.do(trouble)
    for _ in range(5):
        lines += stage.do("beat a", "beat c", "beat d", "wait 15")
    judged = [line for line in lines if line.startswith("Judged") and " shrink " in line]
    assert "the job goes on with 2 nodes" in judged[0]
    assert judged[0].endswith(f"; {LEFT}; a waits: the rest of the replica is gone")


def test_another_software_version_takes_no_seats() -> None:
    stage = alone()
    host = stage.cluster.state.nodes["a"]
    host.version = "0.4.0"
    stage.do("hello b version=0.3.9")
    stage.do("beat a")
    lines = stage.do("wait 12")
    assert not [line for line in lines if line.startswith("Launch b")]
    stage.do("hello b launcher=b-2 incarnation=2 version=0.4.0")
    stage.do("beat a")
    assert [line for line in stage.do("wait 12") if line.startswith("Launch b")]


def test_a_cordoned_node_takes_no_new_seats_and_keeps_its_own() -> None:
    stage = alone()
    assert notes(stage.do("cordon nowhere")) == [
        "cordon_refused nowhere: there is no node of this name; known are a"
    ]
    stage.do("hello b")
    stage.do("cordon b")
    stage.do("beat a")
    assert not [line for line in stage.do("wait 15") if line.startswith("Launch")]
    stage.do("uncordon b")
    stage.do("beat a")
    stage.do("beat b")
    assert [line for line in stage.do("wait 15") if line.startswith("Launch b")]


def test_an_empty_node_is_drained_at_once_and_the_mark_outlives_the_leader() -> None:
    stage = play("elect", "hello a", "hello b", "stored")
    lines = stage.do("drain b")
    assert notes(lines)[-1].startswith("node_drained b") and "Drained b: maintenance" in lines
    stage.do("stored")
    assert stage.etcd.marks["b"].cordoned == "drained: maintenance"
    stage.do("crash")
    stage.do("elect")
    stage.do("hello b")
    assert stage.cluster.state.nodes["b"].cordoned == "drained: maintenance"


def test_a_drain_under_way_is_seen_to_its_end_by_the_next_leader() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("hello c")
    stage.do("drain b deadline=600")
    stage.do("stored")
    stage.do("crash", "elect", "hello a", "hello c", "live 3", "hello b")
    told = [line.split() for line in stage.do("live 20") if line.startswith("Launch c")]
    assert told, "no newcomer for the rank on b"
    newcomer = told[-1][2]
    stage.do(f"report {newcomer} starting")
    stage.do(f"report {newcomer} ready held=-1")
    for member in ("j.1000000", "j.1000001"):
        stage.do(f"report {member} ready held=9 gen=1 heldgen=1")
    stage.do("live 3")
    stage.do("stored")
    assert [seat.node for seat in stage.etcd.generations["j"].seats] == ["a", "c"]


def test_a_drain_nobody_can_follow_is_refused_and_by_force_parks() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    (refused,) = notes(stage.do("drain b"))
    assert refused.startswith("drain_refused b: job j would have 1 of at least 2 nodes")
    stage.do("drain b force=1 deadline=5")
    lines = stage.do("wait 6")
    assert [line for line in lines if line.startswith("Judged node/node_lost ranks=(1,) await_node")]


def test_a_drain_during_a_recovery_comes_after_it() -> None:
    stage = running("submit nodes=2 most=2 nproc=1", "abc")
    stage.do("report j.1000000 exited cause=signaled signal=9")
    lines = stage.do("drain b")
    assert notes(lines)[-1].startswith("draining b") and not [line for line in lines if "Launch c" in line]
    stage.do("report j.1000001 ready held=4 gen=1")
    stage.do("report j.1000002 ready held=-1")
    stage.do("stored")
    stage.do("all running gen=2 step=4")
    assert [line for line in stage.do("started") if line.startswith("Launch c")], "then it is followed"


def test_a_death_while_all_stop_for_a_change_is_recovered_first() -> None:
    stage = alone()
    stage.do("hello b")
    stage.do("beat a")
    stage.do("wait 10")
    stage.do("beat a")
    stage.do("report j.1000001 starting")
    lines = stage.do("report j.1000001 ready held=-1")
    assert [line for line in lines if line.startswith("Judged job/resized ranks=() grow")]
    lines = stage.do("report j.1000000 exited cause=signaled signal=9")
    assert [line for line in lines if line.startswith("Judged") and " respawn " in line]
    assert stage.cluster.state.jobs["j"].changes.resize is None


def test_the_same_device_that_kills_again_and_again_is_left() -> None:
    stage = running("submit nodes=1 nproc=1 restarts=9", "a")
    for turn in range(3):
        member = stage.cluster.state.jobs["j"].seats[0]
        stage.do(f"report {member.member} running gen={turn + 1} step={turn + 1}")
        stage.do(f"report {member.member} exited cause=signaled signal=11")
        seat = stage.cluster.state.jobs["j"].seats[0]
        stage.do(f"report {seat.member} starting")
        stage.do(f"report {seat.member} ready held=-1")
        stage.do("stored")
        stage.do(f"report {seat.member} running gen={turn + 2} step=0")
        stage.do("started")
        stage.do("stored")
    assert stage.cluster.state.jobs["j"].seats[0].local_rank == 1
    assert "device0 takes no ranks" in view.nodes(stage.cluster, 0.0)[0].reason
    assert stage.etcd.marks["a"].devices[0][0] == "device0"


def test_two_jobs_do_not_grow_onto_one_node() -> None:
    stage = alone()
    other = spec(job="k", nnodes_min=1, nnodes_max=1)
    stage.do("hello b")
    stage.do("beat a")
    stage.do("wait 10")
    stage.do("stored")
    assert stage.cluster.state.jobs["j"].changes.resize is not None
    effects = stage.cluster.step(stage.now, ev.JobSubmitted(other))
    told = [e.state.reason for e in effects if isinstance(e, fx.JobChanged)]
    assert any("another job holds" in reason and "b" in reason for reason in told)


def test_a_drain_whose_state_cannot_be_made_durable_waits_with_everything_where_it_is() -> None:
    stage = running("submit nodes=1 most=2 nproc=1 storage=file:///c", "ab")
    stage.do("report j.1000000 running gen=1 step=1 shard=left")
    stage.do("report j.1000001 running gen=1 step=1 shard=right")
    assert [line for line in stage.do("drain b deadline=600") if line.startswith("Judged job/resized")]
    assert [line for line in stage.do("all ready gen=1 held=7 snap=7 snapgen=1") if "Persist b" in line]
    lines = stage.do("failed the_storage_is_full on=b")
    assert not [line for line in lines if "begins again" in line or "respawn" in line]
    lines += stage.do("live 70")
    assert [line for line in lines if "7-1 started" in line], "it is tried again"
    assert "could not be made durable before" in " ".join(notes(lines))
    stage.do("stored")
    resume = stage.etcd.generations["j"].resume
    assert (resume.step, stage.etcd.generations["j"].world_size) == (7, 2)
    stage.do("all running gen=2 step=7 held=-1")
    stage.do("started")
    assert not [line for line in stage.do("live 10") if "halt" in line or "planned" in line]
    assert [line for line in stage.do("live 40") if line.startswith("Judged job/resized")], "later once more"
