"""Simulate the streams between agents and leader: a direction may be held up, and later go on or break."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.agents import Agent
    from tests.sim.world import World


class Valve:
    """One direction of a stream. What is sent while it is shut waits, as in the buffers of TCP."""

    def __init__(self) -> None:
        self.shut = 0
        self._waiting: list[Callable[[], None]] = []

    def through(self, deliver: Callable[[], None]) -> None:
        """Deliver now, or once it is open."""
        if self.shut:
            self._waiting.append(deliver)
        else:
            deliver()

    def open(self, lost: bool) -> None:
        """Open it again. `lost`: the stream has broken meanwhile, and what waited does not arrive."""
        self.shut -= 1
        if self.shut:
            return
        waited, self._waiting = self._waiting, []
        for deliver in () if lost else waited:
            deliver()


def one_way(world: World) -> None:
    """Let packets between an agent and the leader pass one way only."""
    agent = world.rng.choice(world.agents)
    for_s, deaf = world.rng.choice((0.5, 3.0, 8.0, 15.0)), world.rng.random() < 0.5
    world.say("one_way", f"{agent.name} {'hears' if deaf else 'is heard'} nothing for {for_s} s")
    _hold(world, agent, for_s, [agent.inbound if deaf else agent.outbound])


def agent_pause(world: World) -> None:
    """Stop an agent (SIGSTOP), often one that a commit waits for: later it acts on old orders."""
    job = world.cluster.state.jobs.get("j") if world.cluster else None
    busy = [saving.node for saving in job.checkpoints.savings.values()] if job is not None else []
    among = [agent for agent in world.agents if agent.name in busy] or world.agents
    agent, for_s = world.rng.choice(among), world.rng.choice((1.0, 4.0, 12.0, 20.0))
    world.say("agent_pause", f"{agent.name} for {for_s} s, commits in flight: {len(busy)}")
    _hold(world, agent, for_s, [agent.inbound, agent.outbound])


def _hold(world: World, agent: Agent, for_s: float, valves: list[Valve]) -> None:
    lost, life = world.rng.random() < 0.5, agent.incarnation
    for valve in valves:
        valve.shut += 1

    def over() -> None:
        agent.apart_at = world.clock.now
        gone = lost or agent.incarnation != life or not agent.up
        for valve in valves:
            valve.open(gone)
        if lost and agent.up:
            world.broken(agent)

    world.clock.after(for_s, over)
