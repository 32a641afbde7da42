"""Check simulated nodes: with an answer, a late one, none, or one that says what is wrong.

Chance is drawn apart, so that schedules without checks stay what they were."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.analysis import node_checks
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Role
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from controlplane.core.records.timing import CoreSettings
    from tests.sim.agents import Agent
    from tests.sim.world import World

UNANSWERED, BROKEN = "check without an answer", "check that fails"
"""What happens to checks, among the faults that have struck."""
NAME, UNIT = "cpu.gemm.float32", "flop/s"


def settings(common: CoreSettings, policy: str) -> CoreSettings:
    """Settings under which nodes are checked soon; "": they are not."""
    if not policy:
        return common
    return dataclasses.replace(common, check_nodes=policy, check_timeout_s=8.0, check_again_s=5.0)


def check(agent: Agent, order: fx.CheckNode) -> None:
    """Measure a node, unless a rank lives there."""
    world, chance = agent.world, agent.world.check_chance
    fate = chance.random() if world.faults_on else 1.0
    delay_s = chance.uniform(0.5, 12.0 if fate < 0.3 else 3.0)
    if fate < 0.1:
        _count(world, UNANSWERED)
    else:
        agent.after(delay_s, lambda: _answer(agent, order, broken=fate < 0.2))


def _count(world: World, what: str) -> None:
    world.struck[what] = world.struck.get(what, 0) + 1


def _answer(agent: Agent, order: fx.CheckNode, *, broken: bool) -> None:
    there = [
        rank for rank in agent.ranks.values() if rank.alive and (rank.rank >= 0 or rank.role is Role.RANK)
    ]
    reason = f"{there[0].name} lives here" if there else ""
    fault = "3 of 16384 entries are wrong" if broken else ""
    reading = NodeReading(NAME, None if broken else 100.0, UNIT, broken=fault)
    if broken and not reason:
        _count(agent.world, BROKEN)
    readings = () if reason else (reading,)
    agent.tell(ev.NodeChecked(agent.name, agent.incarnation, order.round, readings, reason=reason))


def judge(world: World, term: int, effect: fx.JudgeNode) -> None:
    """Judge readings, a moment later; now and then nobody does."""
    if world.check_chance.random() < 0.9 or not world.faults_on:
        answer = node_checks.answer(effect)
        world.clock.after(0.01, lambda: world.feed_if(term, answer))
