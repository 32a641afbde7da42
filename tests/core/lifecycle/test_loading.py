"""What is away from its ranks is brought in place, whatever happens to those who have it meanwhile."""

from __future__ import annotations

from dataclasses import replace

from controlplane.core.records import effects as fx
from controlplane.core.records.model import Resume, Tier
from controlplane.reporting.event_text import sentence_of
from controlplane.wire.records import plain
from tests.core.make import record
from tests.transcripts.language import Play


def broken(play: Play, storage: str = "") -> None:
    """Two ranks with a shard each; the node of rank 1 is lost, and c takes its seat. a and d are up."""
    play.do("elect")
    for name in ("a", "b", "c slots=1", "d slots=1"):
        play.do(f"hello {name} peer={name[0]}:7")
    play.do("stored")
    play.do(f"submit nodes=2 nproc=1 {storage}")
    play.do("stored", "all starting", "all ready held=-1", "stored")
    play.do("report j.1000000 forming gen=1 shard=left")
    play.do("report j.1000001 forming gen=1 shard=right")
    play.do("all running gen=1 step=0")
    play.do("started")
    for rank in (0, 1):
        play.do(f"report j.100000{rank} running gen=1 step=22 snap=20 snapgen=1 before=10")


def lost(play: Play) -> None:
    play.do("lose b")
    for _ in range(3):
        for name in "acd":
            play.do(f"beat {name}")
        play.do("wait 12")
    play.do("report j.1000000 ready held=22 gen=1")
    play.do("report j.1000002 starting")
    play.do("report j.1000002 ready held=-1")


def committed(play: Play, step: int) -> None:
    kept = record(step, shards=("left", "right"))
    play.cluster.state.jobs["j"].checkpoints.records[kept.id] = kept


def resume(play: Play) -> Resume:
    storing = play.cluster.state.jobs["j"].generations.storing
    assert storing is not None, play.cluster.state.jobs["j"].reason
    return storing.resume


def test_a_copy_is_fetched_by_the_one_who_needs_it() -> None:
    play = Play()
    broken(play)
    for name in "dc":
        play.do(f"keep {name} j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    order = play.last[fx.Fetch]
    assert (order.node, order.member, order.source) == ("c", "j.1000002", "j.1000001")
    play.do("brought")
    assert resume(play).tier is Tier.PEER


def test_a_keeper_that_cannot_give_it_is_left_for_another() -> None:
    play = Play()
    broken(play)
    for name in "cd":
        play.do(f"keep {name} j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    assert play.last[fx.Fetch].address == "c:7", "the keeper is the reader's own node"
    play.do('brought "it is gone"')
    assert play.last[fx.Fetch].address == "d:7"
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 20)


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    play = Play()
    broken(play)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    order = play.last[fx.Fetch]
    play.do("brought")
    before = resume(play)
    play.bringing.append(order)
    play.do("brought late")
    assert resume(play) is before
    assert play.cluster.counts["stale_fetched"] == 1


def test_a_rotten_checkpoint_gives_way_to_the_copies_of_an_older_step() -> None:
    play = Play()
    broken(play, "storage=file:///c")
    committed(play, 20)
    play.do("keep d j.1000001 step=10 gen=1 shard=right rank=1")
    lost(play)
    load = play.last[fx.Load]
    assert (load.member, load.shard) == ("j.1000002", "right")
    play.do('brought "chunk 3 does not match" because=rot')
    assert play.cluster.state.jobs["j"].checkpoints.records["20-1"].bad
    assert (play.last[fx.Fetch].step, play.last[fx.Fetch].source) == (10, "j.1000001")
    play.do("brought")
    assert (resume(play).step, resume(play).sources[0].member) == (10, "j.1000000")


def test_a_silent_node_that_may_keep_newer_state_is_waited_for() -> None:
    play = Play()
    broken(play, "storage=file:///c")
    committed(play, 10)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    play.do("report j.1000002 exited cause=signaled")
    play.do("report j.1000003 starting")
    play.do("break d")
    play.do("report j.1000003 ready held=-1")
    assert "d may keep newer state" in play.cluster.state.jobs["j"].reason
    play.do("hello d peer=d:7 incarnation=2")
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 20)


def test_after_a_failed_fetch_everything_begins_again_when_nothing_is_left_at_all() -> None:
    play = Play()
    broken(play)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    for _ in range(2):
        play.do('brought "no route to host"')
        play.do("wait 6")
    told = " ".join(play.do('brought "no route to host"'))
    assert "Kill a j.1000000: no step is left of which all 2 shards" in told
    play.do("report j.1000000 exited cause=signaled")
    play.do("report j.1000003 starting")
    play.do("report j.1000003 ready held=-1")
    assert (resume(play).tier, resume(play).step) == (Tier.FRESH, 0)
    assert [source.shard for source in resume(play).sources] == ["left", "right"]


def test_a_new_process_that_has_built_no_state_yet_says_nothing_of_what_its_rank_holds() -> None:
    play = Play()
    broken(play)
    play.do("report j.1000001 exited cause=signaled")
    play.do("report j.1000000 ready held=22 gen=1")
    play.do("report j.1000002 starting")
    play.do("report j.1000002 ready held=-1 shard=all")
    assert (resume(play).tier, resume(play).step) == (Tier.MEMORY, 20)
    assert [source.shard for source in resume(play).sources] == ["left", "right"]


def test_one_that_formed_and_had_not_built_its_state_says_nothing_either() -> None:
    play = Play()
    broken(play)
    play.do("report j.1000001 exited cause=signaled")
    play.do("report j.1000000 ready held=22 gen=1")
    play.do("report j.1000002 ready held=-1 shard=all")
    play.do("stored")
    play.do("report j.1000000 forming gen=2")
    play.do("report j.1000002 forming gen=2")
    play.do("report j.1000002 exited cause=signaled")
    play.do("report j.1000000 ready held=20 gen=2")
    play.do("report j.1000003 ready held=-1 shard=all")
    assert (resume(play).tier, resume(play).step) == (Tier.MEMORY, 20)
    assert [source.member for source in resume(play).sources] == ["", "j.1000001"]


def test_the_incident_says_where_the_state_came_from() -> None:
    play = Play()
    broken(play)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    play.do("brought")
    play.do("stored")
    incident = play.last[fx.IncidentChanged].incident
    assert incident.restored.startswith("peer: step 20")
    assert "rank 1 from the copy that d keeps of j.1000001" in incident.restored
    assert incident.restored.endswith("no storage touched")
    line = {"type": "IncidentChanged", "body": {"incident": plain(replace(incident, outcome="recovered"))}}
    assert "state from peer: step 20" in sentence_of(line).text
