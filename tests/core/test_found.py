"""What random schedules found, each at its smallest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records.model import JobPhase, MemberPhase, Tier
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def sleeps(stage: Play) -> bool:
    """Whether the leader waits for something that is still to come."""
    return stage.cluster.next_deadline() > stage.now


def resume(stage: Play) -> tuple[str, int]:
    found = stage.etcd.generations["j"].resume
    return found.tier, found.step


def kept(stage: Play) -> Play:
    """A job of one node that holds a snapshot of step 7, and a spare node beside it that keeps a copy."""
    stage.do("all running gen=1 step=7 snap=7 snapgen=1")
    stage.do("live 12")
    return stage


def test_a_plain_script_that_runs_on_does_not_keep_its_leader_awake() -> None:
    stage = play("elect", "hello a", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("live 21")
    assert sleeps(stage)


def test_a_first_step_that_was_believed_does_not_keep_the_leader_awake() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("report j.1000000 exited cause=signaled signal=9")
    stage.do("report j.1000001 ready held=4 gen=1 heldgen=1")
    stage.do("report j.1000002 starting")
    stage.do("report j.1000002 ready held=-1")
    stage.do("stored")
    stage.do("all running gen=2 step=4")
    stage.do("report j.1000001 running gen=2 step=5")
    stage.do("live 3")
    assert sleeps(stage)


def test_a_node_that_was_given_up_and_spoke_again_is_watched_again() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("live 40 b")
    assert stage.cluster.state.nodes["b"].state == "lost"
    stage.do("beat b")
    assert stage.cluster.state.nodes["b"].state == "up"
    stage.do("live 40 b")
    assert stage.cluster.state.nodes["b"].state == "lost"


def test_a_rank_that_exits_before_others_speak_through_the_sdk_has_left_early() -> None:
    stage = play("elect", "hello a", "submit nodes=1 nproc=2", "stored", "all starting")
    assert not [line for line in stage.do("report j.1000000 exited code=0") if "Judged" in line]
    lines = stage.do("report j.1000001 ready held=-1")
    assert [line for line in lines if line.startswith("Judged rank/exited ranks=(0,)")]


def test_a_sealed_checkpoint_does_not_wait_for_a_silent_node() -> None:
    stage = running("submit nodes=2 nproc=1 storage=file:///c", "ab")
    stage.do("all running gen=1 step=100 snap=100 snapgen=1")
    stage.do("persisted")
    stage.do("break a")
    lines = [*stage.do("stored"), *stage.do("beat b")]
    assert "Publish b 100-1" in lines


def test_a_device_is_as_the_newest_hello_tells() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("device a gpu7 bad")
    assert stage.cluster.state.nodes["a"].bad_devices
    stage.do("hello a incarnation=2")
    assert not stage.cluster.state.nodes["a"].bad_devices


def replicated_shards() -> Play:
    """Two replicas of two ranks each, which were seen to hold the same shards."""
    stage = running("submit nodes=2 nproc=2", "ab")
    for rank, word in enumerate(("left", "right", "left", "right")):
        stage.do(f"report j.100000{rank} running gen=1 step=3 shard={word}")
    stage.do("stored")
    return stage


@pytest.mark.parametrize(("first", "newest"), [("left", (Tier.DONOR, 5)), ("another", (Tier.FRESH, 0))])
def test_what_replicas_hold_outlives_the_leader_unless_a_rank_says_otherwise(
    first: str, newest: tuple[str, int]
) -> None:
    stage = replicated_shards()
    stage.hosts["b"].members.clear()
    stage.do("crash", "elect", "hello b launcher=b-2 incarnation=2", "hello a", "stored")
    stage.do(f"report j.1000000 ready held=5 gen=1 heldgen=1 shard={first}")
    stage.do("report j.1000001 ready held=5 gen=1 heldgen=1 shard=right")
    for member in ("j.2000000", "j.2000001"):
        stage.do(f"report {member} starting")
        stage.do(f"report {member} ready held=-1")
    if newest[0] is Tier.FRESH:
        for member in ("j.2000002", "j.2000003"):
            stage.do(f"report {member} starting")
            stage.do(f"report {member} ready held=-1")
    stage.do("stored")
    assert resume(stage) == newest


def test_a_drain_of_all_that_holds_the_state_waits_for_a_copy_elsewhere() -> None:
    stage = kept(running("submit nodes=1 nproc=1", "ab"))
    stage.do("hello a peer=a:1")
    stage.do("hello b peer=b:1")
    lines = [*stage.do("drain a deadline=600"), *stage.do("live 3")]
    name = next(line.split()[2] for line in lines if line.startswith("Launch b"))
    stage.do(f"report {name} starting")
    lines = stage.do(f"report {name} ready held=-1")
    assert "Interrupt a generation=1 gently keep" in " ".join(lines)
    stage.do("report j.1000000 ready held=9 gen=1 heldgen=1 snap=9 snapgen=1")
    assert not [line for line in stage.do("live 5") if "begins again" in line]
    lines = stage.do("keep b j.1000000 step=9 gen=1")
    assert [line for line in lines if line.startswith("Fetch b") and "step=9" in line]


def test_a_drain_does_not_take_the_only_state_when_its_time_is_over() -> None:
    stage = kept(running("submit nodes=1 nproc=1", "a"))
    stage.do("hello b slots=0")
    assert not [line for line in stage.do("drain a deadline=5") if "forced" in line]
    lines = stage.do("live 30")
    assert not [line for line in lines if "drain_forced" in line]


def test_numbers_gone_wrong_are_not_trusted_after_a_generation_that_never_met() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("all running gen=1 step=12 snap=10 snapgen=1")
    stage.do("fault 12 nan on=j.1000000 kind=nan")
    stage.do("all ready held=12 gen=1 heldgen=1")
    stage.do("stored")
    assert resume(stage) == (Tier.MEMORY, 10)
    stage.do("all ready held=12 gen=2 heldgen=1")
    stage.do("live 20")
    stage.do("stored")
    assert resume(stage) == (Tier.MEMORY, 10)


def test_a_job_that_is_submitted_again_is_not_taken_for_its_former_life() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("stop enough", "stored", "all exited code=0", "submit nodes=1 nproc=1", "crash", "elect")
    job = stage.cluster.state.jobs["j"]
    assert job.phase is JobPhase.STOPPED, "etcd had not heard of the submission"
    stage.do("submit nodes=1 nproc=1")
    stage.do("stored")
    stage.do("crash")
    stage.do("elect")
    job = stage.cluster.state.jobs["j"]
    assert (job.phase, job.seats) == (JobPhase.PENDING, ())
    stage.do("hello a")
    stage.do("stored")
    assert stage.etcd.generations["j"].number == 2


def test_a_job_that_is_submitted_again_for_fewer_nodes_is_cut_anew() -> None:
    stage = running("submit nodes=1 most=2 nproc=1 storage=file:///c", "ab")
    stage.do("report j.1000000 running gen=1 step=7 shard=left snap=7 snapgen=1")
    stage.do("report j.1000001 running gen=1 step=7 shard=right snap=7 snapgen=1")
    stage.do("stop enough", "stored", "all exited code=0", "cordon b", "submit nodes=1 most=2 nproc=1")
    stage.do("stored", "live 12 b", "stored", "all starting", "all ready held=-1", "stored")
    generation = stage.etcd.generations["j"]
    assert generation.world_size == 1 and generation.cut_at == generation.number
    assert resume(stage) == (Tier.FRESH, 0), "no half of the old state is taken for the whole"


def test_a_life_that_never_met_does_not_hide_from_the_next_leader_how_the_state_is_cut() -> None:
    stage = running("submit nodes=1 most=2 nproc=1 storage=file:///c", "ab")
    stage.do("report j.1000000 running gen=1 step=7 shard=left snap=7 snapgen=1")
    stage.do("report j.1000001 running gen=1 step=7 shard=right snap=7 snapgen=1")
    again = ("stop enough", "stored", "all exited code=0", "submit nodes=1 most=2 nproc=1", "stored")
    stage.do(*again, "stop enough", "stored", "all exited code=0", "crash", "elect", "hello a")
    stage.do("submit nodes=1 most=2 nproc=1", "stored", "live 45 b", "stored", "all starting")
    stage.do("all ready held=-1", "stored")
    generation = stage.etcd.generations["j"]
    assert (generation.number, generation.world_size, generation.cut_at) == (3, 1, 3)
    assert resume(stage) == (Tier.FRESH, 0), "no half of the old state is taken for the whole"


@pytest.mark.parametrize("shown", ["", "gen=1"])
def test_a_warm_rank_whose_launch_was_lost_with_its_leader_is_launched_by_the_next_one(shown: str) -> None:
    """`shown`: an agent may name the generation that a process was launched under."""
    stage = play("elect", "hello a", "hello b", "submit nodes=2 nproc=1", "stored")
    stage.do(f"report j.1000000 warm {shown}")
    stage.do("report j.1000001 starting")
    lines = stage.do("crash", "elect", "hello b", "hello a")
    assert [line for line in lines if line.startswith("Launch a j.1000000")]
    assert not [line for line in lines if line.startswith("Launch b")], "it runs its script already"


def test_a_warm_newcomer_whose_launch_was_lost_with_its_leader_is_brought_to_the_barrier() -> None:
    stage = play("elect", "hello a", "submit nodes=1 most=2 nproc=1", "live 12", "stored", "all starting")
    stage.do("all ready held=-1", "stored", "all running gen=1 step=0", "started", "stored", "hello b")
    assert [line for line in stage.do("live 60") if line.startswith("Launch b j.1000001")]
    stage.do("report j.1000001 warm", "crash", "elect", "hello a", "hello b")
    assert [line for line in stage.do("live 60") if line.startswith("Launch b j.1000001")]


@pytest.mark.parametrize("crashes", ["before it is submitted", "after"])
def test_a_job_that_is_submitted_again_waits_for_word_of_its_former_life(crashes: str) -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("hello b", "stop enough", "stored")
    if crashes == "after":
        stage.do("submit nodes=1 nproc=1")
        stage.do("stored")
    stage.do("crash")
    stage.do("elect")
    stage.do("hello b")
    if crashes != "after":
        stage.do("submit nodes=1 nproc=1")
    stage.do("live 12 a")
    assert (job := stage.cluster.state.jobs["j"]).phase is JobPhase.PENDING, "a rank on a may train still"
    assert job.reason == "waits for 1 processes of its former life to end"
    stage.do("live 40 a")
    stage.do("stored")
    generation = stage.etcd.generations["j"]
    assert (generation.number, generation.seats[0].node) == (2, "b"), "a was given up"


def test_a_job_that_is_submitted_again_begins_once_no_node_knows_of_its_former_life() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("stop enough", "stored", "crash", "elect", "submit nodes=1 nproc=1", "stored")
    lines = stage.do("hello a launcher=a-2 incarnation=2")
    assert not [line for line in lines if "died" in line]
    assert [line for line in lines if line.startswith("Store") and "generation=#2" in line]


def test_what_is_told_of_a_job_while_it_ends_does_not_have_it_run_again() -> None:
    """A new leader hears at once that the last ranks are done, and that replicas hold equal shards."""
    stage = running("submit nodes=2 nproc=2", "ab")
    stage.do("crash", "elect")
    for rank, word in enumerate(("left", "right", "left", "right")):
        host = stage.hosts["ab"[rank // 2]]
        name = f"j.100000{rank}"
        done = replace(host.members[name], phase=MemberPhase.FINISHED, rank=rank, held_step=50)
        host.members[name] = replace(done, generation=1, shard=word)
    stage.do("hello a", "hello b", "stored")
    assert stage.cluster.state.jobs["j"].generations.replica_shard_ids == ("left", "right")
    assert stage.etcd.states["j"].phase is JobPhase.LEAVING


def test_what_a_partner_told_of_a_shard_is_known_when_its_copy_has_gone() -> None:
    stage = play("elect", *(f"hello {node} peer={node}:1" for node in "abc"), "submit nodes=2 nproc=1")
    stage.do("stored", "all starting", "report j.1000000 ready held=-1 shard=left")
    stage.do("report j.1000001 ready held=-1 shard=right", "stored")
    stage.do("report j.1000000 running gen=1 step=7 shard=left snap=7 snapgen=1")
    stage.do("report j.1000001 running gen=1 step=7 shard=right snap=7 snapgen=1")
    end, again = ("stop enough", "stored", "all exited code=0"), ("submit nodes=2 nproc=1", "stored")
    stage.do(*end, "lose b", "crash", "elect", "hello a peer=a:1", "hello c peer=c:1", "live 45 b")
    stage.do("keep c j.1000001 step=7 gen=1 shard=right rank=1")
    stage.do(*again, "all starting", "all ready held=-1", "brought")
    stage.do("report j.2000001 ready held=-1 snap=7 snapgen=1")
    stage.hosts["c"].copies.clear()
    stage.do(*end, "beat c", *again, "all starting", "all ready held=-1", "stored")
    found = stage.etcd.generations["j"].resume
    assert (found.step, [source.shard for source in found.sources]) == (7, ["left", "right"])


def test_a_node_lost_while_etcd_is_told_of_a_second_launch_is_judged_once_it_has_been() -> None:
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("stop enough", "stored", "all exited code=0", "submit nodes=2 nproc=1")
    job = stage.cluster.state.jobs["j"]
    assert job.phase is JobPhase.STORING
    lines = stage.do("live 45 b")
    assert not [line for line in lines if line.startswith(("Launch", "Judged"))], "etcd holds no generation 2"
    assert [line for line in stage.do("stored") if line.startswith("Judged node/node_lost ranks=(1,)")]


def test_what_a_node_says_first_when_it_is_heard_again_is_no_proof_that_its_ranks_never_left() -> None:
    """The network kept its words for longer than the node timeout, but not the order to form from it: the job
    was to go on from step 0, and its rank, which has trained on to step 12, to give that."""
    stage = play("elect", "hello a", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("all ready held=-1", "stored")
    stage.do("live 40 a")
    assert stage.cluster.state.jobs["j"].phase is JobPhase.PARKED
    told = stage.do("beat a")
    assert [line for line in told if line.startswith("Interrupt a")]
    assert not [line for line in told if line.startswith("Store") and "generation=" in line]
    stage.do("report j.1000000 running gen=1 step=12", "report j.1000000 ready gen=1 held=12 heldgen=1")
    stage.do("stored")
    assert resume(stage) == (Tier.DONOR, 12)


def behind_the_barrier() -> Play:
    """Rank 1 died once generation 2 was on its way. The network holds up what rank 0 says: it seems to have
    stayed at the barrier with step 7, and generation 3 is to begin with that."""
    stage = running("submit nodes=2 nproc=1", "ab")
    stage.do("all running gen=1 step=7", "report j.1000001 exited cause=signaled signal=9")
    stage.do("report j.1000000 ready gen=1 held=7 heldgen=1")
    stage.do("report j.1000002 starting", "report j.1000002 ready held=-1", "stored")
    stage.do("report j.1000002 exited cause=signaled signal=9", "live 2")
    stage.do("report j.1000003 starting", "report j.1000003 ready held=-1")
    assert stage.cluster.state.jobs["j"].phase is JobPhase.STORING
    return stage


BACK = "report j.1000000 ready gen=2 held=9 heldgen=2"


@pytest.mark.parametrize("seen", ["report j.1000000 running gen=2 step=9", BACK])
def test_a_state_is_not_gone_on_from_when_its_rank_turns_out_to_hold_another(seen: str) -> None:
    stage = behind_the_barrier()
    told = stage.do(seen, "stored")
    assert not [line for line in told if line.startswith("Form ") and "#3[" in line]
    stage.do(BACK, "stored")
    assert resume(stage) == (Tier.DONOR, 9)
    assert stage.cluster.state.jobs["j"].phase is JobPhase.FORMING


def stuck_beyond_a_fault() -> Play:
    """The only state without the fault lies in the older slot of a rank that does not stop, and is killed."""
    stage = running("submit nodes=1 nproc=1 spares=1", "a")
    stage.do("report j.1000001 starting", "report j.1000001 ready held=-1")
    stage.do("report j.1000000 running gen=1 step=11 snap=9 snapgen=1 before=6")
    told = stage.do("fault 9 'loss is nan' on=j.1000000", "stored", "live 31", "stored")
    assert [line for line in told if line.startswith("Kill a j.1000000")]
    assert not [line for line in told if line.startswith("Store") and "resume=memory" in line]
    return stage


LEFT = {"snap=9 before=6": (Tier.MEMORY, 6), "snap=15 before=9": (Tier.FRESH, 0)}


@pytest.mark.parametrize("left", LEFT)
def test_what_a_rank_leaves_that_is_being_killed_is_known_when_it_has_ended(left: str) -> None:
    """Until then it may train on, and overwrite what was released long ago."""
    stage = stuck_beyond_a_fault()
    stage.do(f"report j.1000000 exited cause=signaled signal=9 snapgen=1 {left}", "stored")
    assert resume(stage) == LEFT[left]


def test_what_a_rank_leaves_that_cannot_be_killed_is_not_waited_for_for_ever() -> None:
    stage = stuck_beyond_a_fault()
    stage.do("live 31", "stored")
    assert resume(stage) == (Tier.MEMORY, 6)
