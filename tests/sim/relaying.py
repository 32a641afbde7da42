"""Simulate heartbeats that take the way through another agent, with the real pieces of all three parties.

Any agent may be a relay, and all that befalls agents befalls relays: they die, stop for a while, lose the
leader or are cut off from it. A sender reaches its relay also when the leader cannot be reached."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.deciding.beat_collection import BeatCollection
from agent.deciding.beat_route import BeatRoute
from controlplane.core.records import events as ev
from controlplane.daemon.server.relays import BeatRelays
from controlplane.wire import codec, relayed, versions
from controlplane.wire import control_pb2 as pb
from tests.sim import fencing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.agents import Agent
    from tests.sim.world import World

BEAT_S = 1.0
HEARD_WITHIN_S = 3.2
"""The longest silence of a living node that the leader can hear: one heartbeat that a relay has kept, the
next one that is due then, and the way."""


@dataclass(slots=True)
class Link:
    """The leader's end of an agent's stream."""

    node: str
    incarnation: int
    peer: str
    beat_key: bytes
    takes: frozenset[str] = frozenset(versions.NEW_ORDERS)
    whole_seq: int = -1
    newest_seq: int = -1


@dataclass(slots=True)
class Party:
    """What an agent has of all this."""

    route: BeatRoute = field(default_factory=BeatRoute)
    collection: BeatCollection = field(default_factory=lambda: BeatCollection(8, 1 << 20, BEAT_S))
    key: bytes = b""
    stream: int = 0  # counts its streams to relays
    waits: list[Callable[[], None]] = field(default_factory=list)  # what came in while it was stopped


class Relays:
    """The leader's part and those of all agents."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.route: type[BeatRoute] = BeatRoute  # a planted one must be found out
        self.parties: dict[str, Party] = {}
        self.sent = self.passed_on = 0
        self._term, self._keys = -1, 0
        self._leader: BeatRelays | None = None
        self._links: dict[str, Link] = {}
        self._able_since: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        world.clock.after(0.3, self._look)
        world.clock.after(0.1, self._batches)

    # ------------------------------------------------------------ the leader

    def admitted(self, term: int, node: str, incarnation: int) -> None:
        """The leader's core has admitted an agent: this is its welcome."""
        if term != self._term:
            self._term, self._links = term, {}
            self._leader = BeatRelays(
                2,
                post=lambda event: self._heard(term, event),
                send=lambda name, order: self._order(term, name, order),
                count=self._count,
                show=lambda _number: None,
                clock=lambda: self.world.clock.now,
            )
        self._keys += 1
        link = Link(node, incarnation, f"{node}:peer", self._keys.to_bytes(relayed.KEY_BYTES, "big"))
        assert self._leader is not None
        self._links[node] = link
        self._leader.admitted(link)
        agent = self.world.by_name[node]
        if agent.linked == term and agent.incarnation == incarnation:
            self.parties[node] = Party(self.route(), key=link.beat_key, waits=self._party(agent).waits)

    def heard(self, term: int, event: Any) -> None:
        """The leader of this term has heard an agent, or that its stream broke."""
        link = self._links.get(getattr(event, "node", ""))
        if isinstance(event, ev.NodeBroken):
            self._broken(event.node, event.incarnation)
            return
        if self._leader is not None and term == self._term and link is not None:
            if getattr(event, "incarnation", 0) == link.incarnation:
                self._leader.note(link, event)
                self._heard_at[link.node] = self.world.clock.now

    def _broken(self, node: str, incarnation: int) -> None:
        link = self._links.get(node)
        if link is not None and link.incarnation == incarnation and self._leader is not None:
            del self._links[node]
            self._leader.gone(link)

    def _count(self) -> None:
        self.passed_on += 1

    def _heard(self, term: int, event: Any) -> None:
        for node in [each for each, _ in event.nodes] if isinstance(event, ev.NodesHeard) else [event.node]:
            self._heard_at[node] = self.world.clock.now
        self.world.feed_if(term, event)

    def _order(self, term: int, node: str, order: Any) -> None:
        agent = self.world.by_name[node]
        if agent.linked == term and self.world.clock.now >= agent.cut_until:
            self.world.network(lambda: agent.inbound.through(lambda: self._take(agent, term, order)))

    def _look(self) -> None:
        self.world.clock.after(1.0, self._look)
        if self._leader is not None and self.world.cluster is not None and self.world.term == self._term:
            self._leader.look()
        self._check()

    def _check(self) -> None:
        """No relay may hide a living node that the leader could hear."""
        now, ready = self.world.clock.now, self.world.cluster is not None and not self.world.loss
        for agent in self.world.agents:
            if not (ready and fencing.reached(agent) and not fencing.stopped(agent) and self._is_up(agent)):
                self._able_since.pop(agent.name, None)
                continue
            since = self._able_since.setdefault(agent.name, now)
            silent_s = now - max(since, self._heard_at.get(agent.name, since))
            assert silent_s <= HEARD_WITHIN_S, f"{agent.name} was not heard for {silent_s:.1f} s"

    def _is_up(self, agent: Agent) -> bool:
        assert self.world.cluster is not None
        node = self.world.cluster.state.nodes.get(agent.name)
        return node is not None and node.up and node.incarnation == agent.incarnation

    # ------------------------------------------------------------ senders

    def _party(self, agent: Agent) -> Party:
        return self.parties.setdefault(agent.name, Party())

    def down(self, agent: Agent) -> None:
        """An agent's stream to the leader is over, or its process is."""
        party = self._party(agent)
        self._send_away(agent)
        self.parties[agent.name] = Party(stream=party.stream, waits=party.waits)

    def sends(self, agent: Agent, event: Any) -> bool:
        """Give a heartbeat to the agent's relay; False: it goes directly."""
        party, now = self._party(agent), self.world.clock.now
        if not isinstance(event, ev.StepBeat) or not party.key:
            return False
        if party.route.wants(now):
            self._connect(agent, party)
        if not party.route.through(now, event.seq):
            return False
        self.sent += 1
        beat = codec.to_coordinator(event).step_beat
        data = relayed.seal(agent.name, agent.incarnation, beat, party.key)
        relay, stream = self.world.by_name[party.route.relay], self._stream(agent, party)
        self._later(relay, lambda: self._party(relay).collection.add(stream, event.seq, data))
        return True

    def _stream(self, agent: Agent, party: Party) -> str:
        return f"{agent.name}/{party.stream}"

    def _connect(self, agent: Agent, party: Party) -> None:
        relay = self.world.by_name[party.route.relay]
        party.stream += 1
        if relay.up and relay.linked and not fencing.stopped(relay):
            collection = self._party(relay).collection
            if not collection.senders:
                collection.begin(self.world.clock.now)
            if not collection.admit(self._stream(agent, party)):
                party.route.opened()
                return
        party.route.failed(self.world.clock.now, "not reached")

    # ------------------------------------------------------------ relays

    def _later(self, agent: Agent, deliver: Callable[[], None]) -> None:
        """Deliver something to an agent; what comes while it is stopped waits, as in a socket."""

        def arrive() -> None:
            if fencing.stopped(agent):
                self._party(agent).waits.append(deliver)
            elif agent.up:
                deliver()

        self.world.clock.after(self.world.rng.uniform(0.001, 0.02), arrive)

    def _take(self, agent: Agent, term: int, order: Any) -> None:
        if not agent.up or not agent.outbox.follow(term) or fencing.stopped(agent):
            return
        party = self._party(agent)
        if isinstance(order, relayed.RelayBeats):
            party.route.name(order.relay, order.address)
            return
        for stream, seq in party.collection.taken(order.number):
            sender = self.world.by_name[stream.partition("/")[0]]
            self._later(sender, functools.partial(self._answered, sender, seq))

    def _answered(self, sender: Agent, seq: int) -> None:
        self._party(sender).route.taken(seq)

    def _batches(self) -> None:
        self.world.clock.after(BEAT_S / 2, self._batches)
        for agent in self.world.agents:
            if agent.up and agent.linked and not fencing.stopped(agent):
                self._batch(agent)

    def _batch(self, agent: Agent) -> None:
        collection = self._party(agent).collection
        if not collection.senders:
            return
        if collection.trouble(self.world.clock.now):
            self._send_away(agent)
            return
        waits, self._party(agent).waits = self._party(agent).waits, []
        for deliver in waits:
            deliver()
        batch = collection.batch()
        if batch is not None and self.world.clock.now >= agent.cut_until:
            term, message = agent.linked, relayed.batch(*batch).beats_relayed
            self.world.network(
                lambda: agent.outbound.through(lambda: self._arrived(term, agent.name, message))
            )

    def _arrived(self, term: int, relay: str, message: pb.BeatsRelayed) -> None:
        link = self._links.get(relay)
        if term == self._term == self.world.term and self._leader is not None and link is not None:
            self._leader.take(link, message)

    def _send_away(self, agent: Agent) -> None:
        """A relay ends the streams of its senders."""
        party = self._party(agent)
        for stream in sorted(party.collection.senders):
            name, _, number = stream.partition("/")
            sender = self._party(self.world.by_name[name])
            if sender.route.open and str(sender.stream) == number:
                sender.route.failed(self.world.clock.now, "sent away")
        party.collection.close()
        party.waits.clear()
