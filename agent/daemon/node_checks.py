"""Measure this node when the leader orders it: each part in a process that the launcher starts, as a rank is.

So the parts run where ranks would run: in the trainer's container, with its torch and its devices. Their
processes have names that no member can have, and the agent's core never hears of them. What takes another
machine, clock and links, the agent measures itself, last (`agent.links.checking`). Nothing is measured
while a rank lives here, and a launch ends what is being measured: ranks come first. A repeated order is
answered again, and an answer from before serves where the order says so (`fresh_s`)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.peers.server import AT_WORK
from controlplane.core.records.model import Role
from controlplane.core.records.node_checks import NodeChecked
from holdfast.ipc.messages import launcher as msg
from holdfast.node_check import answers
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from agent.deciding.node_state import NodeState
    from agent.host.paths import Paths
    from controlplane.core.records.effects import CheckNode
    from controlplane.core.records.model import PeerAddress
    from holdfast.ipc.messages.launcher import LauncherCommand, LauncherMessage

PREFIX = "_check."
"""How the names of processes of a check begin. Names of members begin with a letter or a digit."""
SECONDS_MAX = 60.0
TIMEOUT_MAX_S = 600.0
"""What no order may exceed, whoever sends it: the node takes no ranks meanwhile."""
OUTPUT_BYTES_MAX = 256 << 10
KILLED_S = 5.0
"""How long a killed process may take to be gone. One that waits in the kernel is left behind."""
log = logging.getLogger("holdfast.agent")


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the process of one part ended. `trouble`: what went wrong; "": nothing. `cut`: the whole check had
    no more time, which says nothing of the part."""

    lines: list[str]
    trouble: str
    cut: bool = False


class NodeChecks:
    """The checks of one node, one at a time. `command` sends the launcher a command, `send` the leader an
    answer. `env`: the agent's environment, as ranks get it; None: the launcher's own is used. `links`
    measures what takes other machines, until a time (s, monotonic)."""

    def __init__(
        self,
        members: NodeState,
        paths: Paths,
        env: Mapping[str, str] | None,
        command: Callable[[LauncherCommand], None],
        send: Callable[[NodeChecked], None],
        *,
        links: Callable[[Sequence[PeerAddress], float], Awaitable[list[NodeReading]]],
    ) -> None:
        self._members, self._paths, self._env = members, paths, env
        self._command, self._send, self._links = command, send, links
        self._task: asyncio.Task[None] | None = None
        self._round = 0  # of the order that is under way, or was answered last
        self._answer: NodeChecked | None = None  # the newest that brought readings
        self._made_at = 0.0  # when (s, monotonic) that was
        self._last: NodeChecked | None = None  # the newest of all, for a repeated order
        self._ends: dict[str, asyncio.Future[msg.MemberExited | msg.MemberFailed]] = {}
        self._why_not = ""  # why the check under way is given up
        self._at_work = False  # a part is being measured

    def order(self, order: CheckNode) -> None:
        """Measure, unless that is under way or was done; answered by NodeChecked."""
        if order.round == self._round:
            if self._last is not None and self._last.round == order.round:
                self._send(self._last)
            return
        self._round = order.round
        if self._answer is not None and time.monotonic() - self._made_at < order.fresh_s:
            self._tell(dataclasses.replace(self._answer, round=order.round, age_s=self._age_s()))
            return
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._check(order))

    def give_way(self, member: str) -> None:
        """A process is to be launched: end what is being measured."""
        self._give_up(f"{member} was launched here meanwhile")

    def launcher_lost(self) -> None:
        """The launcher died, and what it ran with it."""
        self._give_up("the launcher died meanwhile")

    def disturbs(self) -> str:
        """Why other nodes may measure nothing with this one now; "": they may."""
        return AT_WORK if self._at_work else "a rank lives there" if self._obstacle() else ""

    def _give_up(self, why: str) -> None:
        if self._task is not None and not self._task.done():
            self._why_not = why
            self._task.cancel()

    def owns(self, name: str) -> bool:
        """Whether a process of the launcher belongs to a check."""
        return name.startswith(PREFIX)

    def take(self, message: LauncherMessage) -> None:
        """Take what the launcher says of a process of a check."""
        if isinstance(message, msg.MemberExited | msg.MemberFailed):
            end = self._ends.get(message.member)
            if end is not None and not end.done():
                end.set_result(message)
            else:  # of a check that an agent before this one has made, or that was given up
                self._forget(message.member)

    def leave_out(self, hello: msg.LauncherHello) -> msg.LauncherHello:
        """The hello without processes of checks. Those that a former agent has left are killed."""
        for entry in hello.members:
            if self.owns(entry.member) and entry.member not in self._ends:
                self._command(msg.SignalCommand(entry.member, signal.SIGKILL))
        members = tuple(entry for entry in hello.members if not self.owns(entry.member))
        return dataclasses.replace(hello, members=members)

    async def stop(self) -> None:
        """Cancel what is under way, and wait for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ------------------------------------------------------------ one check

    async def _check(self, order: CheckNode) -> None:
        self._why_not = ""
        until = time.monotonic() + min(order.timeout_s, TIMEOUT_MAX_S)
        load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
        found: list[NodeReading] = []
        try:
            reason = self._obstacle()
            if not reason:
                await self._measure(order, until, found)
                found += await self._links(order.peers, until) if time.monotonic() < until else []
                reason = "" if any(each.value is not None or each.broken for each in found) else _why(found)
        except asyncio.CancelledError:
            if not self._why_not:
                raise
            reason = self._why_not
        except OSError as error:
            reason = f"it cannot be measured: {error}"
        readings = () if reason else tuple(found)
        facts = self._members.facts
        answer = NodeChecked(facts.node, facts.incarnation, order.round, readings, load, reason=reason[:600])
        if readings:
            self._answer, self._made_at = answer, time.monotonic()
        log.info("this node was checked: %s", reason or f"{len(readings)} readings")
        for each in readings:
            if each.value is None and each.reason:
                log.info("%s was not measured: %s", each.name, each.reason)
        self._tell(answer)

    def _tell(self, answer: NodeChecked) -> None:
        self._last = answer
        self._send(answer)

    def _age_s(self) -> float:
        return time.monotonic() - self._made_at

    def _obstacle(self) -> str:
        """Why nothing may be measured now; "": it may."""
        there = [m.name for m in self._members if m.alive and m.status.role is Role.RANK]
        return f"{there[0]} lives here: nothing is measured beside a rank" if there else ""

    async def _measure(self, order: CheckNode, until: float, found: list[NodeReading]) -> None:
        """Measure all parts, one after the other."""
        self._at_work = True
        try:
            await self._measure_parts(order, until, found)
        finally:
            self._at_work = False

    async def _measure_parts(self, order: CheckNode, until: float, found: list[NodeReading]) -> None:
        seconds = min(order.seconds, SECONDS_MAX)
        ended = await self._run(order.round, answers.DEVICES, 0.0, until)
        count, without = answers.devices(ended.lines, ended.trouble)
        found += without
        for part in answers.parts(count):
            if time.monotonic() >= until:
                break  # no reading is better than one that comes too late
            ended = await self._run(order.round, part, seconds, until)
            found += answers.readings(part, ended.lines, "" if ended.cut else ended.trouble)
            if ended.cut:
                found.append(NodeReading(part, None, "", reason="no time was left for it"))

    async def _run(self, number: int, part: str, seconds: float, until: float) -> _Ended:
        """Run one part in a process of its own, until `until` (s, monotonic) at most."""
        name = f"{PREFIX}{number}.{part.replace(':', '-')}"
        path = self._paths.log(f"{PREFIX}{part.replace(':', '-')}")
        left_s, limit_s = max(0.1, until - time.monotonic()), answers.limit_s(seconds)
        end = self._ends[name] = asyncio.get_running_loop().create_future()
        try:
            self._start(name, path, part, seconds)
            ended = await _within(end, min(left_s, limit_s))
            if ended is None:
                trouble = f"it did not end within {limit_s:.0f} s, and was killed"
                await self._kill(name, end)
                return _Ended(_output(path), trouble, cut=left_s < limit_s)
            if isinstance(ended, msg.MemberFailed):
                raise OSError(f"{name} could not be started: {ended.message}")
            lines = _output(path)
            return _Ended(lines, answers.ended(ended.code, ended.signal, _other(lines)))
        except asyncio.CancelledError:
            self._command(msg.SignalCommand(name, signal.SIGKILL))
            raise
        finally:
            del self._ends[name]
            if end.done():
                self._forget(name)

    def _start(self, name: str, path: Path, part: str, seconds: float) -> None:
        argv = ["holdfast.node_check", part, str(seconds), str(self._paths.run)]
        if path.exists():
            os.truncate(path, 0)
        env, inherit = (dict(self._env), None) if self._env is not None else ({}, dict[str, str]())
        self._command(msg.SpawnCommand(name, str(path)))
        run = msg.RunCommand(name, argv, env, str(self._paths.run), True, False, inherit)
        self._command(run)

    async def _kill(self, name: str, end: asyncio.Future[msg.MemberExited | msg.MemberFailed]) -> None:
        self._command(msg.SignalCommand(name, signal.SIGKILL))
        if await _within(end, KILLED_S) is None:
            log.warning("%s was killed, and is not gone after %g s", name, KILLED_S)

    def _forget(self, name: str) -> None:
        self._command(msg.ForgetCommand(name))


async def _within(
    end: asyncio.Future[msg.MemberExited | msg.MemberFailed], limit_s: float
) -> msg.MemberExited | msg.MemberFailed | None:
    """How a process ended; None: it has not within this time."""
    done, _ = await asyncio.wait([end], timeout=limit_s)
    return end.result() if done else None


def _output(path: Path) -> list[str]:
    """The lines that a process wrote."""
    with path.open("rb") as file:
        return file.read(OUTPUT_BYTES_MAX).decode(errors="replace").splitlines()


def _other(lines: list[str]) -> str:
    """What a process wrote besides its readings."""
    return "\n".join(line for line in lines if not line.startswith("{"))


def _why(found: list[NodeReading]) -> str:
    """Why there is no number at all."""
    return next((each.reason for each in found if each.reason), "its parts have answered nothing")
