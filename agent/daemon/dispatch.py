"""Carry out the effects of the agent's core: a table from kind of effect to handler.

Effects are carried out in order, at once, on the event loop. Only a launch can fail here; the core is sent
LaunchFailed, and the effects behind it, which counted on the launch, are dropped."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.events import LaunchFailed, StacksReported
from agent.ranks.environment import environment
from agent.ranks.forms import form_message
from controlplane.core.records.model import Role
from holdfast.ipc.messages.launcher import ForgetCommand, RunCommand, SpawnCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.daemon.launcher_client import LauncherClient
    from agent.daemon.rank_ends import RankEnds
    from agent.daemon.stacks import Stacks
    from agent.deciding import events as ev
    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from agent.host.folders import Folders
    from agent.host.outputs import Outputs
    from agent.host.paths import Paths
    from agent.host.ports import OfferedPort
    from agent.logs.keeping import RankLogs
    from agent.ranks.arenas import Arenas
    from agent.ranks.environment import NodeFacts
    from agent.ranks.members import MemberMemory
    from agent.ranks.rank_server import RankServer
    from controlplane.core.records import events
    from controlplane.core.records.model import JobSpec, Standing
    from holdfast.ipc.messages.agent import AgentMessage

_HEALS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOENT)
)
"""Errors that may pass by themselves: no room, no descriptors, a folder that was removed."""
log = logging.getLogger("holdfast.agent")


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a node that effects act on, and the callables through which the dispatcher reports
    back."""

    environment: NodeFacts
    paths: Paths
    members: NodeState
    folders: Folders
    memory: MemberMemory
    rank_server: RankServer
    launcher: LauncherClient
    arenas: Arenas
    stacks: Stacks
    ends: RankEnds
    logs: RankLogs
    outputs: Outputs | None
    port: OfferedPort
    own_launcher: bool
    show_tracebacks: bool
    show_local_ranks: frozenset[int]  # empty: all
    decide: Callable[[ev.Event], None]  # passes an event to the core
    send_event: Callable[[events.Event], None]  # sends an event to the leader
    count: Callable[[str], None]


class EffectDispatcher:
    """A table from kind of effect to its handler."""

    def __init__(self, components: Components) -> None:
        self._of = of = components
        self._table: dict[type[Any], Callable[[Any], object]] = {
            fx.Push: self._push,
            fx.Form: self._push,
            fx.Spawn: self._spawn,
            fx.Run: self._run,
            fx.Command: lambda effect: of.launcher.send(effect.command),
            fx.Keep: self._keep,
            fx.SendEvent: lambda effect: of.send_event(effect.event),
            fx.Adopt: self._adopt,
            fx.Ended: self._ended,
            fx.ReportEnd: of.ends.report,
            fx.Dismiss: self._dismiss,
            fx.MakeRoom: self._make_room,
            fx.HideTraceback: self._conceal,
            fx.TakeStacks: self._take_stacks,
            fx.Note: _note,
            fx.Count: lambda effect: of.count(effect.kind),
        }

    def do(self, effects: Iterable[fx.Effect]) -> None:
        """Carry out effects in order. When a launch fails, the effects behind it are dropped."""
        for effect in effects:
            act = self._table[type(effect)]
            if not isinstance(effect, fx.Spawn | fx.Run):
                act(effect)
            elif failure := _failure(act, effect):
                reason, heals = failure
                spawned = isinstance(effect, fx.Run)
                self._of.decide(LaunchFailed(effect.member, reason, spawned, heals))
                return

    def message(self, effect: fx.Push | fx.Form) -> AgentMessage:
        """The message that an effect sends to a rank. Raises ValueError when it cannot be made."""
        if isinstance(effect, fx.Push):
            return effect.message
        member = self._member(effect.member)
        assert member is not None  # the effect comes from a step of the core that knew the member
        return form_message(member, effect.generation, effect.incident, self._of.paths)

    def _member(self, name: str) -> LocalMember | None:
        return self._of.members.get(name)

    def _spawn(self, effect: fx.Spawn) -> None:
        of, member = self._of, self._member(effect.member)
        assert member is not None  # the core added it in the same step
        of.folders.repair()
        of.memory.make(member)
        log.info("%s is launched as %s", effect.member, effect.order.role.value)
        path = of.paths.log(effect.member)
        of.logs.note(member.status)  # before its process can write anything
        of.launcher.send(SpawnCommand(effect.member, str(path)))
        self._show(member)

    def _run(self, effect: fx.Run) -> None:
        of, order, spec = self._of, effect.order, effect.order.spec
        base, page = (os.environ if of.own_launcher else {}), str(of.paths.page(order.member))
        env = environment(base, order, of.environment, page)
        inherit = None if of.own_launcher else _mild(env, spec)
        of.launcher.send(
            RunCommand(order.member, list(spec.argv), env, spec.cwd, spec.module, spec.no_python, inherit)
        )
        if order.generation is not None:
            of.port.used(int(order.generation.master.rpartition(":")[2] or 0))

    def _keep(self, effect: fx.Keep) -> None:
        self._of.memory.keep(effect.status)
        self._of.logs.note(effect.status)

    def _push(self, effect: fx.Push | fx.Form) -> None:
        self._of.rank_server.push(effect.member, self.message(effect))

    def _adopt(self, effect: fx.Adopt) -> None:
        member = self._member(effect.member)
        if member is None:
            return
        if member.page is None:  # no stored status named it: only the launcher knew of it
            self._of.memory.make(member)
        self._show(member, from_end=True)

    def _show(self, member: LocalMember, *, from_end: bool = False) -> None:
        outputs, node = self._of.outputs, self._of.environment.node
        if outputs is not None:
            path = self._of.paths.log(member.name)
            outputs.follow(
                member.name,
                path,
                lambda: _label(node, member),
                from_end=from_end,
                shown=lambda: _is_shown(member, self._of.show_local_ranks),
            )

    def _ended(self, effect: fx.Ended) -> None:
        if self._of.outputs is not None:
            self._of.outputs.finish(effect.member)

    def _conceal(self, effect: fx.HideTraceback) -> None:
        """Keep a traceback out of the shown output: the member's log has it, and the coordinator gets it."""
        if self._of.outputs is not None and not self._of.show_tracebacks:
            self._of.outputs.hide(effect.member, effect.traceback)

    def _dismiss(self, effect: fx.Dismiss) -> None:
        self._of.launcher.send(ForgetCommand(effect.member.name))
        self._of.memory.remove(effect.member)

    def _make_room(self, effect: fx.MakeRoom) -> None:
        member = self._member(effect.member)
        if member is not None:
            self._of.arenas.ask(member, effect.slot_bytes)

    def _take_stacks(self, effect: fx.TakeStacks) -> None:
        member = self._member(effect.member)
        if member is not None:
            self._of.stacks.report_silent(member, partial(self._stacks_taken, effect))

    def _stacks_taken(self, effect: fx.TakeStacks, report: Standing) -> None:
        self._of.decide(StacksReported(effect.member, effect.age_s, effect.last_message_at, report))


def _failure(do: Callable[[Any], object], effect: fx.Effect) -> tuple[str, bool] | None:
    """Why the effect could not be carried out, and whether the obstacle may pass; None when it was carried
    out."""
    try:
        do(effect)
    except (OSError, ValueError) as error:
        heals = isinstance(error, OSError) and error.errno in _HEALS
        if not heals:  # else it is tried again, and said in a line
            log.exception("cannot launch a process")
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "; make room there, and it is started" if full else ""
        return (str(error) or type(error).__name__) + remedy, heals
    return None


def _note(effect: fx.Note) -> None:
    log.log(logging.WARNING if effect.warning else logging.INFO, "%s", effect.text)


def _label(node: str, member: LocalMember) -> str:
    status = member.status
    rank = "spare" if status.role == Role.SPARE and status.rank < 0 else str(status.rank)
    return f"{node} {rank}"


def _is_shown(member: LocalMember, local_ranks: frozenset[int]) -> bool:
    """Whether the output of this member is shown now. That of an unknown local rank is: better too much."""
    if not local_ranks:
        return True
    if member.status.role == Role.SPARE and member.status.rank < 0:
        return False
    return member.local_rank < 0 or member.local_rank in local_ranks


def _mild(env: dict[str, str], spec: JobSpec) -> dict[str, str]:
    """Take the defaults out of `env` that variables of the trainer's container override, and return them.

    A variable that the job sets itself stays."""
    asked = {name for name, _ in spec.env}
    return {name: env.pop(name) for name in ("OMP_NUM_THREADS",) if name in env and name not in asked}
