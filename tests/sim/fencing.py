"""Check nodes that no order reaches: their ranks may train on until their agent fences them, not longer.

`node_timeout_s` is shorter than `fence_after_s` on purpose (the daemons check that): places are reassigned
before the ranks that had them can be sure to have stopped. So a whole group on nodes that were given up may
train beside the next one. That does no harm: its generation is over, so nobody uses anything that it
makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.events import Linked, NotLeading

if TYPE_CHECKING:
    from tests.sim.agents import Agent
    from tests.sim.groups import Group
    from tests.sim.world import World

FENCE_AFTER_S = 13.0
"""An agent's `fence_after_s`: a little more than the node timeout of these schedules."""
LEAVE_S = 4.0
"""Within this time an order that is repeated each second has arrived and is carried out."""


def stopped(agent: Agent) -> bool:
    """Whether it is stopped (SIGSTOP): it receives nothing, sends nothing and looks at nothing."""
    return bool(agent.inbound.shut and agent.outbound.shut)


def reached(agent: Agent) -> bool:
    """Whether it and the current leader hear each other."""
    open_ = agent.up and not (agent.inbound.shut or agent.outbound.shut)
    return open_ and agent.linked == agent.world.term and agent.world.clock.now >= agent.cut_until


def watch(agent: Agent) -> None:
    """Feed the agent's fence, as often as it beats.

    A leader that is heard, or whose host says that it is down, has reassigned nothing. When neither has been
    the case for too long, the agent's core stops the ranks."""
    world, now = agent.world, agent.world.clock.now
    down = world.cluster is None and all(each.runs for each in world.frozen.values())
    refused = down and now >= agent.cut_until
    if reached(agent) or refused:
        agent.sure_at = now
    if refused:
        agent.hear(NotLeading("leader"))
    # Half of the schedules with many snapshots are of a large cluster, whose leader wants beats alone.
    by_beats = world.options.often and world.options.seed % 2 == 0
    agent.hear(Linked(reached(agent), by_beats))


class Astray:
    """Watches groups of former generations that train on."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Numbers of the generations that no order reached when their places were reassigned
        self._beyond: dict[int, None] = {}

    def formed(self, newest: int) -> None:
        """A group has met. Note the older groups whose agents were all out of the leader's reach until just
        now: only these may train on."""
        now = self._world.clock.now
        for number, group in self._world.groups.items():
            agents = list({id(rank.agent): rank.agent for rank in group.members.values()}.values())
            if number < newest and agents and all(now - apart_at(agent) < LEAVE_S for agent in agents):
                self._beyond[number] = None

    def met(self, group: Group, newest: int) -> None:
        """A group has met although its generation is over. Check that its agents were out of reach until just
        now, and note that it may train.

        Its order to form was unread at a stopped agent, or in the buffers of a cut network, and arrives
        before the order that ends it. No agent can tell such an order from a current one; it may be followed
        only where no other order could arrive until just now."""
        number, now = group.generation.number, self._world.clock.now
        for rank in group.members.values():
            apart = now - apart_at(rank.agent) < LEAVE_S
            assert apart, f"generation {number} forms after {newest} on {rank.agent.name}, which is reached"
        self._beyond[number] = None

    def stepped(self, group: Group, newest: int) -> None:
        """A group of a former generation has made a step: check that it may."""
        number, now = group.generation.number, self._world.clock.now
        assert number in self._beyond, f"generation {number} trains while {newest} has formed"
        for rank in group.members.values():
            agent = rank.agent
            told = now - apart_at(agent) > LEAVE_S
            assert not told, f"generation {number} trains on {agent.name}, which is reached, beside {newest}"
            assert not _late(agent) or rank.wedged, f"generation {number} trains beyond {agent.name}'s fence"


def _late(agent: Agent) -> bool:
    """Whether its fence should have closed by now."""
    now = agent.world.clock.now
    looks = agent.up and not stopped(agent) and now - agent.apart_at > LEAVE_S
    return looks and now - agent.sure_at > FENCE_AFTER_S + LEAVE_S


def apart_at(agent: Agent) -> float:
    """When it was last out of the leader's reach."""
    now = agent.world.clock.now
    if not reached(agent):
        return now
    return max(agent.apart_at, agent.cut_until if agent.cut_until <= now else now)
