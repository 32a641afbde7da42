"""Which nodes keep copies of whose snapshots: pure plans, and the orders that follow from them."""

from __future__ import annotations

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records.model import Partner
from controlplane.core.restore.replica_holders import ReplicaHolder, ShardNeed, plan
from tests.core.lifecycle.test_loading import broken, lost
from tests.transcripts.language import Play


def holders(*domains: str) -> list[ReplicaHolder]:
    """Nodes n0, n1 ... in these domains."""
    return [ReplicaHolder(f"n{index}", domain) for index, domain in enumerate(domains)]


def test_what_lives_in_enough_domains_costs_nothing() -> None:
    assert plan([ShardNeed("all", ("a", "b"), 10)], holders("a", "b", "c"), replicas=1) == {}
    assert plan([ShardNeed("all", ("a",), 10)], holders("a", "b"), replicas=0) == {}


def test_copies_are_outside_the_own_domain_and_apart_from_each_other() -> None:
    found = plan([ShardNeed("s", ("rack1",), 10)], holders("rack1", "rack2", "rack2", "rack3"), replicas=2)
    assert found == {"s": ("n1", "n3")}


def test_fewer_than_wanted_when_there_are_no_more_domains() -> None:
    assert plan([ShardNeed("s", ("a",), 10)], holders("a", "b"), replicas=2) == {"s": ("n1",)}
    assert plan([ShardNeed("s", ("a",), 10)], holders("a"), replicas=1) == {"s": ()}


def test_the_lightest_is_taken_by_bytes_then_by_copies() -> None:
    nodes = [
        ReplicaHolder("a", "a"),
        ReplicaHolder("b", "b", (500, 1)),
        ReplicaHolder("c", "c", (500, 0)),
        ReplicaHolder("d", "d"),
    ]
    shards = [ShardNeed(f"s{i}", ("a",), size) for i, size in enumerate((600, 10, 10))]
    assert plan(shards, nodes, replicas=1) == {"s0": ("d",), "s1": ("c",), "s2": ("b",)}


def test_a_former_choice_stays_while_it_lives_and_is_balanced_around() -> None:
    nodes = holders("a", "b", "c")
    kept = ShardNeed("s0", ("a",), 10, former=("n2",))
    assert plan([kept, ShardNeed("s1", ("a",), 10)], nodes, 1) == {"s0": ("n2",), "s1": ("n1",)}
    assert plan([kept], nodes[:2], 1) == {"s0": ("n1",)}
    own = ShardNeed("s0", ("c",), 10, former=("n2",))
    assert plan([own], nodes, 1) == {"s0": ("n0",)}


@pytest.mark.parametrize("nodes", [16, 128])
def test_a_thousand_shards_are_spread_evenly_and_again_the_same(nodes: int) -> None:
    names = holders(*(f"d{index}" for index in range(nodes)))
    per = 1024 // nodes
    shards = [ShardNeed(f"s{rank}", (f"d{rank // per}",), 100) for rank in range(1024)]
    found = plan(shards, names, replicas=1)
    counts = [sum(name == holder.node for (name,) in found.values()) for holder in names]
    assert max(counts) - min(counts) <= 2
    assert all(by[0] != f"n{rank // per}" for rank, by in enumerate(found.values()))
    again = [ShardNeed(s.shard_id, s.domains, s.size, found[s.shard_id]) for s in shards]
    assert plan(again, names, replicas=1) == found


# ---------------------------------------------------------------- orders


def running(play: Play, *hello: str, shards: tuple[str, ...] = ("all",), nodes: int = 1) -> None:
    """A job of one rank per node that runs; rank r holds shards[r]."""
    play.do("elect")
    for line in hello:
        play.do(f"hello {line}")
    play.do("stored")
    play.do(f"submit nodes={nodes} nproc=1")
    play.do("stored", "all starting", "all ready held=-1", "stored")
    for rank, shard in enumerate(shards):
        play.do(f"report j.{1000000 + rank} forming gen=1 shard={shard} bytes=100")
    play.do("all running gen=1 step=0")
    play.do("started")


def ordered(play: Play) -> fx.Replicate | None:
    return play.last.get(fx.Replicate)


def test_a_node_without_seats_keeps_the_copy_of_a_job_on_one_node() -> None:
    play = Play()
    running(play, "a peer=a:7", "b peer=b:7")
    assert ordered(play) == fx.Replicate("a", "j", (Partner("j.1000000", "b", "b:7"),))


def test_plain_data_parallel_over_two_nodes_costs_nothing() -> None:
    play = Play()
    running(play, "a peer=a:7", "b peer=b:7", "c peer=c:7", shards=("all", "all"), nodes=2)
    assert ordered(play) is None


def test_two_nodes_of_one_rack_are_one_domain() -> None:
    play = Play()
    running(
        play, "a peer=a:7 domain=r1", "b peer=b:7 domain=r1", "c peer=c:7 domain=r2",
        shards=("all", "all"), nodes=2,
    )  # fmt: skip
    assert ordered(play) == fx.Replicate("a", "j", (Partner("j.1000000", "c", "c:7"),))


def test_a_new_stream_hears_its_partners_again_and_a_lost_partner_is_replaced() -> None:
    play = Play()
    running(play, "a peer=a:7", "b peer=b:7", "c peer=c:7")
    first = ordered(play)
    assert first is not None
    assert first.partners[0].node == "b"
    del play.last[fx.Replicate]
    play.do("beat a")
    assert ordered(play) is None
    play.do("break a")
    play.do("hello a peer=a:7 incarnation=2")
    assert ordered(play) == first
    play.do("lose b")
    for _ in range(3):
        play.do("beat a")
        play.do("beat c")
        play.do("wait 12")
    assert ordered(play) == fx.Replicate("a", "j", (Partner("j.1000000", "c", "c:7"),))


def test_a_new_leader_keeps_the_partners_that_have_copies() -> None:
    play = Play()
    running(play, "a peer=a:7", "b peer=b:7", "c peer=c:7")
    play.do("keep c j.1000000 step=10 gen=1")
    play.do("crash")
    play.do("elect")
    for name in "abc":
        play.do(f"hello {name} peer={name}:7")
    found = ordered(play)
    assert found is not None
    assert [partner.node for partner in found.partners] == ["c"]


def test_what_cannot_be_kept_twice_is_said_once_with_the_mend() -> None:
    play = Play()
    running(play, "a peer=a:7")
    note = play.last[fx.Note]
    assert (note.kind, note.subject) == ("no_partner", "j")
    assert "one more node" in note.reason
    del play.last[fx.Note]
    play.do("break a")
    play.do("hello a peer=a:7 incarnation=2")
    assert play.last[fx.Note].kind != "no_partner"


def test_the_end_of_a_job_reaches_those_who_keep_copies_of_it() -> None:
    play = Play()
    running(play, "a peer=a:7", "b peer=b:7")
    play.do("keep b j.1000000 step=10 gen=1")
    play.do("stop enough")
    told = " ".join(play.do("stored"))
    assert "Complete b" in told


@pytest.mark.parametrize(("jobs", "kept"), [("other", False), ("other,j", True), ("", True)])
def test_only_nodes_that_may_hold_a_job_keep_its_copies(jobs: str, kept: bool) -> None:
    """The certificate of an agent, or its --jobs, says whose state may lie in its memory."""
    stage = Play()
    stage.do("elect", "hello a peer=a:7", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("all ready held=-1", "stored", "all forming gen=1", "all running gen=1 step=0", "started")
    told = stage.do(f"hello b peer=b:7 jobs={jobs}")
    assert any(line.startswith("Replicate a") and "b:7" in line for line in told) is kept
    assert (stage.cluster.state.jobs["j"].replicas.alone == "") is kept


def moved(play: Play, spec: str = "") -> None:
    """Rank 1 was lost with its node b; c has taken its seat, and d and a keep copies of the former one."""
    broken(play, spec)
    for holder in "da":
        play.do(f"keep {holder} j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    play.do("brought", "stored", "all forming gen=2")
    play.do("report j.1000000 forming gen=2 shard=left", "report j.1000002 forming gen=2 shard=right")
    play.do("all running gen=2 step=20", "started")


def released(play: Play, step: int) -> list[str]:
    told = []
    for member in ("j.1000000", "j.1000002"):
        told += play.do(f"report {member} running gen=2 step={step + 2} snap={step} snapgen=2 before=20")
    return [line for line in told if line.startswith("Discard")]


def test_they_are_dropped_where_there_are_fewer_nodes_than_copies_are_wanted() -> None:
    play = Play()
    moved(play, "replicas=5")
    job = play.cluster.state.jobs["j"]
    assert (
        job.replicas.alone
        and job.replicas.holders["left"] == ("c", "d")
        and job.replicas.holders["right"] == ("a", "d")
    )
    for shard, member in (("left", "j.1000000"), ("right", "j.1000002")):
        for holder in job.replicas.holders[shard]:
            play.do(f"keep {holder} {member} step=30 gen=2 shard={shard}")
    assert released(play, 30) == ["Discard a j.1000001", "Discard d j.1000001"]


def test_copies_of_ranks_that_are_gone_are_dropped_once_newer_ones_are_kept_everywhere() -> None:
    play = Play()
    moved(play)
    assert released(play, 30) == [], "no copy of this generation is kept yet"
    holders = play.cluster.state.jobs["j"].replicas.holders
    play.do(f"keep {holders['left'][0]} j.1000000 step=30 gen=2 shard=left rank=0")
    assert released(play, 40) == [], "only one shard's is"
    play.do(f"keep {holders['right'][0]} j.1000002 step=40 gen=2 shard=right rank=1")
    assert released(play, 50) == ["Discard a j.1000001", "Discard d j.1000001"]
    assert released(play, 60) == ["Discard a j.1000001", "Discard d j.1000001"], "until they are gone"
    for holder in "ad":
        del play.hosts[holder].copies["j.1000001"]
        play.do(f"beat {holder}")
    assert released(play, 70) == []
    assert not play.cluster.state.jobs["j"].replicas.leftovers
