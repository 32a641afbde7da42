"""Simulate networks that part: two nodes cut from each other, or a leader that hears no living node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import PeerSight

if TYPE_CHECKING:
    from tests.sim.agents import Agent
    from tests.sim.world import World

TRIES = 3


class Parts:
    """The pairs of nodes that are cut from each other, one way or both, and until when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until: dict[tuple[str, str], float] = {}

    def cut(self, one: str, other: str, until: float) -> None:
        """No packet passes from `one` to `other`."""
        self._until[one, other] = until

    def heal(self) -> None:
        """End all cuts."""
        self._until.clear()

    def passes(self, one: str, other: str) -> bool:
        """Whether packets pass both ways: a connection needs both."""
        now = self._world.clock.now
        return all(self._until.get(pair, 0.0) <= now for pair in ((one, other), (other, one)))

    def whole(self, nodes: list[str]) -> bool:
        """Whether all of these nodes reach each other."""
        if not self._until:
            return True
        return all(self.passes(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :])


def look(agent: Agent, order: fx.LookAtPeers) -> None:
    """Dial the peers, and report."""
    world, slow = agent.world, 0.0
    found = []
    for peer in order.peers:
        other = world.by_name[peer.node]
        reached = other.up and world.parts.passes(agent.name, peer.node)
        slow = slow if reached else TRIES * 1.0
        found.append(PeerSight(peer.node, TRIES, 0 if reached else TRIES, "" if reached else "no answer"))
    told = ev.PeersLooked(agent.name, agent.incarnation, order.round, tuple(found))
    agent.after(slow + world.rng.uniform(0.01, 0.2), lambda: agent.tell(told))


def probe(world: World, term: int, effect: fx.Probe) -> None:
    """Probe a silent node, as the leader does: one that is only not heard answers."""
    agent = world.by_name[effect.node]
    muted = world.clock.now < agent.muted_until
    cut = world.clock.now < agent.cut_until and not muted
    answered = agent.up and not cut
    agent.refused_at = agent.refused_at if answered else world.clock.now
    reason = "" if answered else ("no answer" if cut else "connection refused")
    delay = 3.0 if cut else world.rng.uniform(0.01, 0.5)
    event = ev.ProbeAnswered(effect.node, effect.incarnation, answered, reason)
    world.clock.after(delay, lambda: world.feed_if(term, event))


def part(world: World) -> None:
    """Cut two nodes from each other, one way or both, while both reach the leader."""
    if len(world.agents) < 2:
        return
    one, other = world.rng.sample([agent.name for agent in world.agents], 2)
    for_s, both = world.rng.choice((2.0, 8.0, 20.0)), world.rng.random() < 0.7
    world.say("part", f"{one} {'and' if both else 'to'} {other} for {for_s} s")
    world.parts.cut(one, other, world.clock.now + for_s)
    if both:
        world.parts.cut(other, one, world.clock.now + for_s)


def mute(world: World) -> None:
    """Have the leader and most nodes not hear each other; they live, and answer its probes."""
    for_s = world.rng.choice((3.0, 11.0, 18.0))
    share = world.rng.choice((0.4, 0.7, 1.0))
    muted = [agent for agent in world.agents if world.rng.random() < share]
    world.say("mute", f"{', '.join(agent.name for agent in muted)} for {for_s} s")
    for agent in muted:
        agent.cut_until = max(agent.cut_until, world.clock.now + for_s)
        agent.muted_until = agent.cut_until
        if world.rng.random() < 0.5:
            world.broken(agent)
