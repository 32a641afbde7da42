"""Simulate launchers: processes are warmed, run, and end; an agent that attaches learns of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.events import LauncherSaid
from controlplane.core.records.model import MemberPhase
from tests.sim.ranks import Rank

if TYPE_CHECKING:
    from agent.deciding import effects as do
    from tests.sim.agents import Agent


def attach(agent: Agent) -> None:
    """Attach an agent: it gets every end that was not acknowledged yet, then the list of all that live."""
    now_ns = int(agent.world.clock.now * 1e9)
    for told in list(agent.exits.values()):
        agent.hear(LauncherSaid(told, now_ns))
    runs = [
        {"member": rank.name, "pid": 1, "state": "running" if rank.script else "warm"}
        for rank in agent.ranks.values()
        if rank.phase not in (MemberPhase.LAUNCHED, MemberPhase.EXITED)
    ]
    hello = {"op": "hello", "launcher": f"{agent.name}/{agent.boots}", "members": runs}
    agent.hear(LauncherSaid(hello, now_ns))


def spawn(agent: Agent, effect: do.Spawn) -> None:
    """Warm an interpreter for a member."""
    order = effect.order
    rank = Rank(order.member, order.spec, agent, order.role, elastic=agent.world.elastic, rank=order.rank)
    agent.ranks[order.member] = rank
    agent.later(0.3, rank, lambda: _warm(rank))


def run(agent: Agent, effect: do.Run) -> None:
    """Have it become the script."""
    rank = agent.ranks[effect.member]
    rank.script, rank.rank = True, effect.order.rank
    if rank.phase is MemberPhase.WARM:
        _start(rank)


def _warm(rank: Rank) -> None:
    rank.phase = MemberPhase.WARM
    _say("warm", rank)
    if rank.script:
        _start(rank)


def _start(rank: Rank) -> None:
    agent, rank.phase = rank.agent, MemberPhase.STARTING
    _say("running", rank)
    if rank.elastic:
        agent.later(0.5, rank, rank.begin)
    else:
        work_s = agent.world.step_s * agent.world.steps
        agent.later(work_s, rank, lambda: end(agent, rank, 0))


def _say(op: str, rank: Rank) -> None:
    rank.agent.hear(LauncherSaid({"op": op, "member": rank.name, "pid": 1}))


def command(agent: Agent, effect: do.Command) -> None:
    """Carry out what the agent orders its launcher."""
    words = effect.words
    if words["op"] == "forget":
        agent.exits.pop(words["member"], None)
    elif words["op"] == "signal":
        rank = agent.ranks.get(words["member"])
        if rank is not None and rank.alive:
            agent.later(0.005, rank, lambda: end(agent, rank, None))


def end(agent: Agent, rank: Rank, code: int | None) -> None:
    """End a process: by SIGKILL, unless it has an exit code. Repeated until it is acknowledged."""
    rank.phase, rank.stopped, rank.connected = MemberPhase.EXITED, False, False
    now_ns, number = int(agent.world.clock.now * 1e9), 9 if code is None else None
    ended = {"code": code, "signal": number, "at_ns": now_ns}
    agent.exits[rank.name] = {"op": "exited", "member": rank.name, "pid": 1, **ended}
    agent.hear(LauncherSaid(agent.exits[rank.name], now_ns))


def dismiss(agent: Agent, effect: do.Dismiss) -> None:
    """Remove everything of this member."""
    name = effect.member.name
    agent.let_go[name] = None
    agent.exits.pop(name, None)
    agent.ranks.pop(name, None)
    agent.kept.pop(name, None)
