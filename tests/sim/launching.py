"""Simulate launchers: processes are warmed, run, and end; an agent that attaches learns of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.events import LauncherReported
from controlplane.core.records.model import MemberPhase
from holdfast.ipc.messages import launcher as msg
from tests.sim.ranks import Rank

if TYPE_CHECKING:
    from agent.deciding import effects as do
    from tests.sim.agents import Agent


def attach(agent: Agent) -> None:
    """Attach an agent: it gets every end that was not acknowledged yet, then the list of all that live."""
    now_ns = int(agent.world.clock.now * 1e9)
    for exited in list(agent.exits.values()):
        agent.hear(LauncherReported(exited, now_ns))
    runs = tuple(
        msg.ProcessEntry(rank.name, 1, "running" if rank.script else "warm")
        for rank in agent.ranks.values()
        if rank.phase not in (MemberPhase.LAUNCHED, MemberPhase.EXITED)
    )
    hello = msg.LauncherHello(msg.VERSION, f"{agent.name}/{agent.boots}", runs)
    agent.hear(LauncherReported(hello, now_ns))


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
    _report(rank, msg.MemberWarm(rank.name, 1))
    if rank.script:
        _start(rank)


def _start(rank: Rank) -> None:
    agent, rank.phase = rank.agent, MemberPhase.STARTING
    _report(rank, msg.MemberRunning(rank.name, 1))
    if rank.elastic:
        agent.later(0.5, rank, rank.begin)
    else:
        work_s = agent.world.step_s * agent.world.steps
        agent.later(work_s, rank, lambda: end(agent, rank, 0))


def _report(rank: Rank, message: msg.LauncherMessage) -> None:
    rank.agent.hear(LauncherReported(message))


def command(agent: Agent, effect: do.Command) -> None:
    """Carry out what the agent orders its launcher."""
    command = effect.command
    if isinstance(command, msg.ForgetCommand):
        agent.exits.pop(command.member, None)
    elif isinstance(command, msg.SignalCommand):
        rank = agent.ranks.get(command.member)
        if rank is not None and rank.alive:
            agent.later(0.005, rank, lambda: end(agent, rank, None))


def end(agent: Agent, rank: Rank, code: int | None) -> None:
    """End a process: by SIGKILL, unless it has an exit code. Repeated until it is acknowledged."""
    rank.phase, rank.stopped, rank.connected = MemberPhase.EXITED, False, False
    now_ns, number = int(agent.world.clock.now * 1e9), 9 if code is None else None
    agent.exits[rank.name] = msg.MemberExited(rank.name, 1, code, number, now_ns)
    agent.hear(LauncherReported(agent.exits[rank.name], now_ns))


def dismiss(agent: Agent, effect: do.Dismiss) -> None:
    """Remove everything of this member."""
    name = effect.member.name
    agent.let_go[name] = None
    agent.exits.pop(name, None)
    agent.ranks.pop(name, None)
    agent.kept.pop(name, None)
