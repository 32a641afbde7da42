"""Simulate ranks that hang: others wait for them, agents report late ranks and collect stack reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.silence import silence_s
from controlplane.core.records import events as ev
from controlplane.core.records.model import Collective, MemberPhase, Standing

if TYPE_CHECKING:
    from agent.deciding.member import LocalMember
    from controlplane.core.records import effects as fx
    from tests.sim.agents import Agent
    from tests.sim.ranks import Rank
    from tests.sim.world import World

TOLD_CHANCE = 0.8
"""The chance that a rank's collectives are known; without them nobody can be singled out."""
BEAT_S = 2.0


def hang(world: World) -> None:
    """Have a rank make no progress; half of these do not react to the order to stop either."""
    living = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    if running := [r for r in living if r.phase is MemberPhase.RUNNING]:
        victim = world.rng.choice(running)
        world.say("hang", victim.name)
        victim.hung_in = victim.generation
        victim.wedged = world.rng.random() < 0.5


def collect(agent: Agent, order: fx.CollectStacks) -> None:
    """Answer with the ranks' stack reports."""
    world = agent.world
    known = world.rng.random() < TOLD_CHANCE
    ranks = tuple(
        _standing(agent.ranks[member.name], member, known)
        for member in agent.core.members.of(order.job)
        if member.status.phase is MemberPhase.RUNNING and member.status.generation == order.generation
    )
    told = ev.StacksCollected(agent.name, agent.incarnation, order.job, order.generation, order.round, ranks)
    agent.after(world.rng.uniform(0.05, 0.8), lambda: agent.tell(told))


def _standing(rank: Rank, member: LocalMember, known: bool) -> Standing:
    now, status = rank.agent.world.clock.now, member.status
    since_s = now - rank.marked_at
    stalled, entered = 0 < status.stalled_s <= since_s, Collective("0", rank.held + (0 if rank.hung else 1))
    silent_s = silence_s(member, now, BEAT_S) if rank.stopped else 0.0
    groups = (entered,) if known and not rank.stopped else ()
    return Standing(
        rank.name, status.rank, rank.board, "forward", since_s, stalled, groups, silent_s=silent_s
    )
