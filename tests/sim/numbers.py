"""Simulate numeric anomalies: ranks that find a NaN, and the states that must not be used after that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import Fault, MemberPhase

if TYPE_CHECKING:
    from tests.sim.world import World

OF = " of generation "


def nan(world: World) -> None:
    """Have a rank report a NaN. Each step does so once at most, or the job would rightly end."""
    ranks = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    running = [r for r in ranks if r.phase is MemberPhase.RUNNING and r.elastic and r.held not in world.wrong]
    if running:
        victim = world.rng.choice(running)
        world.say("nan", f"{victim.name} in step {victim.held}")
        world.wrong.add(victim.held)
        where = {"generation": victim.generation, "step": victim.held}
        victim.say("fault", keep=True, kind="nan", reason="loss is nan", rollback=False, **where)


def born(line: str) -> int:
    """The generation that computed the states of a lineage."""
    return int(line.rpartition(OF)[2]) if OF in line else 0


def hit(fault: Fault, step: int, line: str) -> bool:
    """Whether an anomaly makes this state untrusted."""
    return step >= fault.step and born(line) <= fault.generation
