"""No state that is still held somewhere is passed over for an older one; none is chosen that is not there."""

from __future__ import annotations

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Tier
from tests.core.lifecycle.test_loading import broken, lost, resume
from tests.core.test_cluster import play, running
from tests.transcripts.language import Play


def reason(stage: Play) -> str:
    return stage.cluster.state.jobs["j"].reason


def test_one_fetch_that_failed_does_not_cost_a_step() -> None:
    stage = Play()
    broken(stage)
    stage.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    stage.do("keep a j.1000001 step=10 gen=1 shard=right rank=1")
    lost(stage)
    assert stage.last[fx.Fetch].step == 20
    stage.do('brought "no route to host"')
    assert "no other copy is as new: it is tried again" in reason(stage)
    stage.do("wait 6")
    assert (stage.last[fx.Fetch].step, stage.last[fx.Fetch].address) == (20, "d:7")
    stage.do("brought")
    assert (resume(stage).tier, resume(stage).step) == (Tier.PEER, 20)


def test_a_copy_that_cannot_be_had_three_times_is_given_up_for_an_older_one() -> None:
    stage = Play()
    broken(stage)
    stage.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    stage.do("keep a j.1000001 step=10 gen=1 shard=right rank=1")
    lost(stage)
    for _ in range(2):
        assert not [line for line in stage.do('brought "no route"') if "copy_given_up" in line]
        stage.do("wait 6")
    told = stage.do('brought "no route"')
    assert [line for line in told if line.startswith("Note copy_given_up")]
    assert (stage.last[fx.Fetch].step, stage.last[fx.Fetch].address) == (10, "a:7")


def moved() -> Play:
    """One rank on a, with a snapshot in the memory of a alone; its device kills ranks: b takes its place."""
    stage = play("elect", "hello a slots=1 peer=a:7", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("all ready held=-1", "stored", "all forming gen=1", "all running gen=1 step=0", "started")
    stage.do("report j.1000000 running gen=1 step=22 snap=20 snapgen=1 before=10")
    stage.do("hello b peer=b:7")
    for member in ("j.1000000", "j.1000001", "j.1000002"):
        if member != "j.1000000":
            stage.do(f"report {member} starting")
        stage.do(f"report {member} exited cause=signaled signal=9")
    return stage


def ready_on_b(stage: Play) -> None:
    stage.do("report j.1000003 starting")
    stage.do("report j.1000003 ready held=-1")


def test_what_a_rank_left_on_a_node_that_nobody_sits_on_is_fetched_from_there() -> None:
    stage = moved()
    ready_on_b(stage)
    order = stage.last[fx.Fetch]
    assert (order.node, order.member, order.address) == ("b", "j.1000003", "a:7")
    assert (order.source, order.step, order.generation) == ("j.1000000", 20, 1)
    stage.do("brought")
    assert (resume(stage).tier, resume(stage).step) == (Tier.PEER, 20)


def test_a_node_whose_stream_broke_is_waited_for_when_what_a_rank_left_there_is_the_newest() -> None:
    stage = moved()
    stage.do("break a")
    ready_on_b(stage)
    assert "a may keep newer state" in reason(stage)
    stage.do("beat a")
    stage.do("brought")
    assert (resume(stage).tier, resume(stage).step) == (Tier.PEER, 20)


def test_a_node_that_is_given_up_is_waited_for_no_longer() -> None:
    stage = moved()
    stage.do("break a")
    ready_on_b(stage)
    stage.do("live 40 a")
    assert (resume(stage).tier, resume(stage).step) == (Tier.FRESH, 0)


def test_a_slot_that_was_let_go_is_not_chosen() -> None:
    """The agent's beats are late: the rank, which is being ended, has overwritten what they tell of."""
    stage = running("submit nodes=1 nproc=1 spares=1", "a")
    stage.do("report j.1000001 starting")
    stage.do("report j.1000001 ready held=-1")
    stage.do("report j.1000000 running gen=1 step=10 snap=10 snapgen=1")
    for step in (20, 30):
        assert f"Release a step={step} kept from none" in stage.do(f"snapshot {step}")
    stage.do("drain a deadline=1 force=1")
    stage.do("live 3 a")
    stage.do("uncordon a")
    stage.do("live 3 a")
    assert "j.1000000 is being ended" in stage.cluster.state.jobs["j"].reason
    stage.do("report j.1000000 exited gen=1 step=31 snap=30 snapgen=1 before=20 signal=9")
    assert (resume(stage).tier, resume(stage).step) == (Tier.MEMORY, 30)


def faulted(*words: str) -> Play:
    """A leader hears that numbers are wrong, tells etcd, and is gone before the ranks hear of it."""
    stage = running("submit nodes=1 nproc=1 storage=file:///c", "a")
    stage.do("report j.1000000 running gen=1 step=22 snap=20 snapgen=1 before=10")
    stage.do(f"fault 15 nan on=j.1000000 {' '.join(words)}")
    jobs = (effect for effect in stage.asked if isinstance(effect, fx.StoreJob))
    told = next(effect for effect in jobs if effect.state.faults)
    stage.etcd.put(told)
    stage.do("crash", "elect")
    return stage


def test_a_generation_whose_numbers_were_found_wrong_is_stopped_by_the_next_leader_too() -> None:
    stage = faulted()
    told = stage.do("hello a")
    assert [line for line in told if line.startswith("Judged job/fault ranks=() rollback")]
    assert not stage.cluster.state.jobs["j"].checkpoints.savings, (
        "no checkpoint is made of a state that nobody trusts"
    )
    stage.do("all ready held=22 gen=1 heldgen=1")
    assert (resume(stage).tier, resume(stage).step) == (Tier.MEMORY, 10)


def test_where_people_want_the_end_at_such_numbers_the_next_leader_ends_the_job() -> None:
    stage = faulted("kind=user", "rollback=no")
    stage.do("hello a")
    stage.do("stored")
    assert stage.cluster.state.jobs["j"].phase is JobPhase.FAILED


def test_a_node_that_people_give_back_keeps_copies_again() -> None:
    stage = play("elect", "hello a peer=a:7", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("all ready held=-1", "stored", "all forming gen=1", "all running gen=1 step=0", "started")
    stage.do("hello b peer=b:7")
    assert stage.last[fx.Replicate].partners
    stage.do("drain b deadline=5")
    assert not stage.last[fx.Replicate].partners
    stage.do("uncordon b")
    assert [partner.node for partner in stage.last[fx.Replicate].partners] == ["b"]


def in_a_step(slots: int) -> Play:
    """Ranks of one node that train; the first one is killed, with snapshots of step 20 in memory."""
    setup = (
        "elect",
        f"hello a slots={slots} peer=a:7",
        f"submit nodes=1 nproc={slots}",
        "stored",
        "all starting",
    )
    stage = play(*setup)
    stage.do("all ready held=-1", "stored", "all forming gen=1", "all running gen=1 step=0", "started")
    for rank in range(slots):
        stage.do(f"report j.{1_000_000 + rank} running gen=1 step=22 snap=20 snapgen=1")
    stage.do("report j.1000000 exited cause=signaled signal=9")
    stage.do(f"report j.{1_000_000 + slots} starting", f"report j.{1_000_000 + slots} ready held=-1")
    return stage


def test_no_generation_begins_beyond_what_a_living_rank_has_ended() -> None:
    stage = in_a_step(3)
    stage.do("report j.1000001 ready held=23 ended=23 gen=1 heldgen=1 step=23")
    stage.do("report j.1000002 ready held=22 ended=22 gen=1 heldgen=1 step=22")
    assert (resume(stage).tier, resume(stage).step, resume(stage).rank) == (Tier.DONOR, 22, 2)


def test_where_nobody_is_clean_with_what_all_have_ended_it_is_the_snapshot() -> None:
    stage = in_a_step(3)
    stage.do("report j.1000001 ready held=23 ended=23 gen=1 heldgen=1 step=23")
    stage.do("report j.1000002 ready held=-1 ended=22 gen=1 heldgen=1 step=22")
    assert (resume(stage).tier, resume(stage).step) == (Tier.MEMORY, 20)


def test_where_tails_may_be_cut_the_newest_clean_step_wins() -> None:
    stage = in_a_step(3)
    stage.do("report j.1000001 ready held=23 gen=1 heldgen=1 step=23")
    stage.do("report j.1000002 ready held=22 gen=1 heldgen=1 step=22")
    assert (resume(stage).tier, resume(stage).step, resume(stage).rank) == (Tier.DONOR, 23, 1)
