"""Does what the agent's core wants: a table from effect to the room that can."""

from __future__ import annotations

import errno
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.events import LaunchFailed, Stood
from agent.ranks.environment import environment
from controlplane.core.records.model import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.daemon.node import Node
    from agent.deciding.member import Member
    from controlplane.core.records.model import JobSpec, Standing

_HEALS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOENT)
)
"""What may pass by itself: no room, no descriptors, a folder that was removed."""
log = logging.getLogger("holdfast.agent")


class Acts:
    """The hands of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._table: dict[type[Any], Callable[[Any], object]] = {
            fx.Push: self._say,
            fx.Form: self._say,
            fx.Spawn: self._spawn,
            fx.Run: self._run,
            fx.Command: lambda effect: node.launcher.say(**effect.words),
            fx.Keep: lambda effect: node.memory.keep(effect.status),
            fx.Tell: lambda effect: node.link.tell(effect.event),
            fx.Adopt: self._adopt,
            fx.Ended: self._ended,
            fx.Dismiss: self._dismiss,
            fx.MakeRoom: self._make_room,
            fx.Conceal: self._conceal,
            fx.Testify: self._testify,
            fx.Note: _note,
            fx.Count: lambda effect: node.count(effect.kind),
        }

    def do(self, effects: Iterable[fx.Effect]) -> None:
        """Do all of them in order; when a launch cannot be done, what followed from it is not either."""
        for effect in effects:
            act = self._table[type(effect)]
            if not isinstance(effect, fx.Spawn | fx.Run):
                act(effect)
            elif failure := _failure(act, effect):
                reason, heals = failure
                spawned = isinstance(effect, fx.Run)
                self._node.decide(LaunchFailed(effect.member, reason, spawned, heals))
                return

    def _member(self, name: str) -> Member | None:
        return self._node.members.get(name)

    def _spawn(self, effect: fx.Spawn) -> None:
        node, member = self._node, self._member(effect.member)
        assert member is not None  # it was taken up in the same breath
        node.folders.mend()
        node.memory.make(member)
        log.info("%s is launched as %s", effect.member, effect.order.role.value)
        path = node.paths.log(effect.member)
        node.launcher.say(op="spawn", member=effect.member, log=str(path))
        self._show(member)

    def _run(self, effect: fx.Run) -> None:
        node, order, spec = self._node, effect.order, effect.order.spec
        own = node.settings.own_launcher
        env = environment(os.environ if own else {}, order, node.facts, str(node.paths.board(order.member)))
        node.launcher.say(
            **({} if own else {"inherit": _mild(env, spec)}),
            op="run",
            member=order.member,
            argv=list(spec.argv),
            env=env,
            cwd=spec.cwd,
            module=spec.module,
            no_python=spec.no_python,
        )
        if order.generation is not None:
            node.port.used(int(order.generation.master.rpartition(":")[2] or 0))

    def _say(self, effect: fx.Push | fx.Form) -> None:
        self._node.gate.push(effect.member, self._node.frame(effect))

    def _adopt(self, effect: fx.Adopt) -> None:
        member = self._member(effect.member)
        if member is None:
            return
        if member.board is None:  # no record told of it: the launcher alone knew
            self._node.memory.make(member)
        self._show(member, from_end=True)

    def _show(self, member: Member, *, from_end: bool = False) -> None:
        outputs, name = self._node.outputs, self._node.name
        if outputs is not None:
            path = self._node.paths.log(member.name)
            outputs.follow(member.name, path, lambda: _label(name, member), from_end=from_end)

    def _ended(self, effect: fx.Ended) -> None:
        if self._node.outputs is not None:
            self._node.outputs.finish(effect.member)

    def _conceal(self, effect: fx.Conceal) -> None:
        """The coordinator has it, if that is wanted; the member's log keeps it."""
        if self._node.outputs is not None and not self._node.settings.show_tracebacks:
            self._node.outputs.hide(effect.member, effect.traceback)

    def _dismiss(self, effect: fx.Dismiss) -> None:
        self._node.launcher.say(op="forget", member=effect.member.name)
        self._node.memory.remove(effect.member)

    def _make_room(self, effect: fx.MakeRoom) -> None:
        member = self._member(effect.member)
        if member is not None:
            self._node.arenas.ask(member, effect.slot_bytes)

    def _testify(self, effect: fx.Testify) -> None:
        member = self._member(effect.member)
        if member is not None:
            self._node.stacks.testify(member, partial(self._stood, effect))

    def _stood(self, effect: fx.Testify, standing: Standing) -> None:
        self._node.decide(Stood(effect.member, effect.age_s, effect.heard_at, standing))


def _failure(do: Callable[[Any], object], effect: fx.Effect) -> tuple[str, bool] | None:
    """Why this cannot be done, and whether that may pass by itself; None when it was."""
    try:
        do(effect)
    except (OSError, ValueError) as error:
        log.exception("a launch cannot be carried out")
        heals = isinstance(error, OSError) and error.errno in _HEALS
        return str(error) or type(error).__name__, heals
    return None


def _note(effect: fx.Note) -> None:
    log.log(logging.WARNING if effect.warning else logging.INFO, "%s", effect.text)


def _label(node: str, member: Member) -> str:
    status = member.status
    rank = "spare" if status.role == Role.SPARE and status.rank < 0 else str(status.rank)
    return f"{node} {rank}"


def _mild(env: dict[str, str], spec: JobSpec) -> dict[str, str]:
    """Take out of `env` the defaults that the trainer container's own variables outweigh."""
    asked = {name for name, _ in spec.env}
    return {name: env.pop(name) for name in ("OMP_NUM_THREADS",) if name in env and name not in asked}
