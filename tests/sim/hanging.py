"""Ranks that hang: the others wait for them, agents tell who is late, and where each of them stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import events as ev
from controlplane.core.model import Collective, MemberPhase, Standing

if TYPE_CHECKING:
    from controlplane.core import effects as fx
    from tests.sim.agents import Agent
    from tests.sim.ranks import Rank
    from tests.sim.world import World

DEADLINE_S = 3.0
TOLD_CHANCE = 0.8
"""That a rank's groups can be told: else nobody can be singled out."""


def hang(world: World) -> None:
    """A rank gets no further; half of them do not hear either that they are to stop."""
    living = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    if running := [r for r in living if r.phase is MemberPhase.RUNNING]:
        victim = world.rng.choice(running)
        world.say("hang", victim.name)
        victim.hung_in, generation = victim.generation, victim.generation
        victim.wedged = world.rng.random() < 0.5
        world.clock.after(DEADLINE_S, lambda: _late(world, victim, generation))


def _late(world: World, victim: Rank, generation: int) -> None:
    """All ranks of the generation are past their deadlines, as each agent finds in its own time."""
    if not victim.hung or victim.generation != generation:
        return
    for agent in world.agents:
        for rank in agent.ranks.values():
            if rank.generation == generation and rank.phase is MemberPhase.RUNNING:
                world.clock.after(world.rng.uniform(0.0, 0.5), lambda r=rank: _stalled(r, generation))  # type: ignore[misc]


def _stalled(rank: Rank, generation: int) -> None:
    if rank.generation == generation and rank.phase is MemberPhase.RUNNING:
        rank.stalled_in = generation
        rank.agent.report(rank)


def collect(agent: Agent, order: fx.CollectStacks) -> None:
    """Say where the ranks stand."""
    world = agent.world
    known = world.rng.random() < TOLD_CHANCE
    ranks = tuple(
        _standing(rank, known)
        for rank in agent.ranks.values()
        if rank.generation == order.generation and rank.phase is MemberPhase.RUNNING and not rank.stopped
    )
    told = ev.StacksCollected(agent.name, agent.incarnation, order.job, order.generation, order.round, ranks)
    world.clock.after(world.rng.uniform(0.05, 0.8), lambda: agent.send(told))


def _standing(rank: Rank, known: bool) -> Standing:
    entered = Collective("0", rank.held + (0 if rank.hung else 1))
    return Standing(
        rank.name, rank.rank, rank.held, "forward", DEADLINE_S, rank.stalled, (entered,) if known else ()
    )
