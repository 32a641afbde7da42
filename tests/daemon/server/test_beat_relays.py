"""What a leader believes of the heartbeats that an agent passes on for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.core.records.events import NodeBeat, NodesHeard, StepBeat
from controlplane.daemon.server.relays import NEWCOMERS_MAX, BeatRelays
from controlplane.wire import codec, relayed, versions
from controlplane.wire import control_pb2 as pb
from controlplane.wire.relayed import BEATS_MAX, BeatsTaken, RelayBeats
from controlplane.wire.shape import WireError


def key_of(name: str) -> bytes:
    return (name * relayed.KEY_BYTES).encode()[: relayed.KEY_BYTES]


@dataclass
class Link:
    node: str
    peer: str = "10.0.0.1:4000"
    incarnation: int = 7
    takes: frozenset[str] = frozenset(versions.NEW_ORDERS)
    beat_key: bytes = b"k"
    whole_seq: int = -1
    newest_seq: int = -1


class Leader:
    def __init__(self, *nodes: str) -> None:
        self.posted: list[Any] = []
        self.orders: list[Any] = []
        self.counted = 0
        self.now = 0.0
        self.relays = BeatRelays(
            1,
            post=self.posted.append,
            send=lambda _node, order: self.orders.append(order),
            count=self._count,
            show=lambda _number: None,
            clock=lambda: self.now,
        )
        self.links = {node: Link(node, beat_key=key_of(node)) for node in nodes}
        for link in self.links.values():
            self.relays.admitted(link)

    def _count(self) -> None:
        self.counted += 1

    def whole(self, node: str, seq: int) -> None:
        self.relays.note(self.links[node], NodeBeat(node, 7, seq, 1, ()))

    def take(self, *beats: bytes, relay: str = "r") -> list[str]:
        return self.relays.take(self.links[relay], pb.BeatsRelayed(number=3, beats=beats))


def sealed(node: str, seq: int, like: int, key: str = "", *, incarnation: int = 7, step: int = 5) -> bytes:
    beat = StepBeat(node, incarnation, seq, like, (step,), (-1,), (-1,))
    return relayed.seal(node, incarnation, codec.to_coordinator(beat).step_beat, key_of(key or node))


def test_a_genuine_heartbeat_is_like_one_that_came_directly() -> None:
    leader = Leader("r", "a")
    leader.whole("a", 4)
    assert leader.take(sealed("a", 5, 4)) == []
    assert leader.posted == [StepBeat("a", 7, 5, 4, (5,), (-1,), (-1,))]
    assert leader.orders == [BeatsTaken("r", 3)] and leader.counted == 1


def test_one_whose_whole_heartbeat_is_not_here_yet_shows_that_its_node_lives() -> None:
    leader = Leader("r", "a")
    leader.whole("a", 4)
    assert leader.take(sealed("a", 9, 8)) == []
    assert leader.posted == [NodesHeard((("a", 7),))]


@pytest.mark.parametrize(
    ("beat", "why"),
    [
        (sealed("a", 5, 4, key="r"), "a relayed heartbeat of a without the mark of its stream"),
        (sealed("a", 5, 4, incarnation=6), "a relayed heartbeat of 'a', which has no such stream here"),
        (sealed("stranger", 5, 4), "a relayed heartbeat of 'stranger', which has no such stream here"),
        (sealed("a", 4, 4), "relayed heartbeat 4 of a is older than 4"),
        (b"\xff\xff", "2 bytes that are not a RelayedBeat"),
        (sealed("a", 5, 4, step=1 << 60), "StepBeat.steps"),
    ],
)
def test_what_a_relay_could_make_itself_or_repeat_is_dropped_by_name_and_the_rest_is_taken(
    beat: bytes, why: str
) -> None:
    leader = Leader("r", "a", "b")
    for node in ("a", "b"):
        leader.whole(node, 4)
    (dropped,) = leader.take(beat, sealed("b", 5, 4))
    assert why in dropped
    assert [event.node for event in leader.posted] == ["b"]


def test_no_heartbeat_counts_twice_nor_after_a_newer_word() -> None:
    leader = Leader("r", "a")
    leader.whole("a", 4)
    assert leader.take(sealed("a", 5, 4)) == []
    assert leader.take(sealed("a", 5, 4)) == ["relayed heartbeat 5 of a is older than 5"]
    leader.whole("a", 20)
    assert leader.take(sealed("a", 19, 4)) == ["relayed heartbeat 19 of a is older than 20"]
    assert len(leader.posted) == 1


def test_a_mark_of_a_former_stream_is_none() -> None:
    leader = Leader("r", "a")
    former = leader.links["a"]
    leader.links["a"] = Link("a", beat_key=key_of("another"))
    leader.relays.admitted(leader.links["a"])
    leader.relays.gone(former)
    leader.whole("a", 4)
    assert leader.take(sealed("a", 5, 4)) == ["a relayed heartbeat of a without the mark of its stream"]
    leader.relays.gone(leader.links["a"])
    assert leader.take(sealed("a", 6, 4)) == ["a relayed heartbeat of 'a', which has no such stream here"]


def test_a_batch_beyond_all_bounds_is_refused_whole() -> None:
    leader = Leader("r", "a")
    with pytest.raises(WireError, match="BeatsRelayed: over"):
        leader.take(*[b"x"] * (BEATS_MAX + 1))
    with pytest.raises(WireError, match="below 0"):
        leader.relays.take(leader.links["r"], pb.BeatsRelayed(number=-1))
    assert leader.orders == []


def test_nobody_is_given_a_relay_while_many_agents_come() -> None:
    leader = Leader(*(f"n{number}" for number in range(NEWCOMERS_MAX + 1)))
    leader.relays.look()
    assert leader.orders == []
    leader.relays.look()
    assert len(leader.orders) == NEWCOMERS_MAX


def test_agents_that_do_not_know_relays_are_given_none() -> None:
    leader = Leader("r", "a")
    old = Link("old", takes=frozenset())
    leader.relays.admitted(old)
    leader.relays.look()
    assert leader.orders == [RelayBeats("a", "r", "10.0.0.1:4000")]
