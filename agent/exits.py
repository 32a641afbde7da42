"""What the launcher says of processes, and what the end of one means."""

from __future__ import annotations

import dataclasses
import logging
import signal
import time
from typing import TYPE_CHECKING

from agent.members import survey
from controlplane.core.model import Cause, Failure, MemberPhase, MemberStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.frames import Message
    from agent.members import Member
    from agent.node import Node

log = logging.getLogger("holdfast.agent")


class Exits:
    """The handlers of the launcher's messages."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.launcher = ""  # id of the launcher
        self._ops: dict[str, Callable[[Message], None]] = {
            "hello": self._hello,
            "warm": self._warm,
            "running": self._running,
            "exited": self._exited,
            "failed": self._failed,
            "note": self._note,
            "stood": self._stood,
            "stopping": self._stopping,
        }

    def hear(self, message: Message) -> None:
        """Take one message of the launcher. One that cannot be is dropped: it must not end the agent."""
        op = f"{message.get('op')!r:.80}"
        handler = self._ops.get(str(message.get("op")))
        if handler is None:
            self._node.drop("launcher_message", f"unknown op {op}")
            return
        try:
            handler(message)
        except (OSError, LookupError, TypeError, ValueError) as error:
            self._node.drop("launcher_message", f"{op}: {error!r:.300}")

    def lost(self) -> None:
        """The launcher died, and its members with it."""
        for member in self._node.members:
            if member.alive:
                self._end(member, None, signal.SIGKILL, time.monotonic_ns(), "its launcher died")

    def _hello(self, message: Message) -> None:
        """Adopt what runs. A member that we knew alive and the launcher does not have is gone."""
        self.launcher = str(message["launcher"])
        running = {entry["member"]: entry for entry in message["members"]}
        for name, entry in running.items():
            self._adopt(name, entry)
        for member in self._node.members:
            if member.alive and member.name not in running and member.launch is None:
                self._end(member, None, None, time.monotonic_ns(), "it is gone; nobody saw its end")

    def _adopt(self, name: str, entry: Message) -> None:
        member = self._node.members.get(name)
        if member is None:
            job = name.rpartition(".")[0]
            member = self._node.members.add(MemberStatus(name, job, MemberPhase.LAUNCHED))
        if entry["state"] == "running":
            member.ordered_to_run = True
        early = member.status.phase in (MemberPhase.LAUNCHED, MemberPhase.WARM)
        phases = {"warm": MemberPhase.WARM, "running": MemberPhase.STARTING}
        phase = phases.get(entry["state"], member.status.phase) if early else member.status.phase
        self._node.adopted(member)
        self._node.members.update(member, pid=entry["pid"], phase=phase)

    def _warm(self, message: Message) -> None:
        member = self._node.members.get(message["member"])
        if member is None or not member.alive:
            return
        self._node.members.note(member, pid=message["pid"])
        if member.status.phase == MemberPhase.LAUNCHED:
            phase = MemberPhase.LAUNCHED if member.ordered_to_run else MemberPhase.WARM
            self._node.members.update(member, phase=phase)

    def _running(self, message: Message) -> None:
        member = self._node.members.get(message["member"])
        if member is None or not member.alive:
            return
        if member.status.phase in (MemberPhase.LAUNCHED, MemberPhase.WARM):
            self._node.members.update(member, phase=MemberPhase.STARTING, pid=message["pid"])

    def _exited(self, message: Message) -> None:
        member = self._node.members.get(message["member"])
        if member is None:
            self._node.launcher.say(op="forget", member=message["member"])
        elif member.alive:
            self._end(member, message["code"], message["signal"], message["at_ns"], "")

    def _failed(self, message: Message) -> None:
        member = self._node.members.get(str(message.get("member")))
        if member is None or not member.alive:
            return
        failure = Failure(Cause.LAUNCH_FAILED, str(message.get("message"))[:2000])
        self._node.order_failed(member.status.job, member.name, failure)
        self._finish(member, failure)

    def _stood(self, message: Message) -> None:
        self._node.stacks.stood(message)

    def _note(self, message: Message) -> None:
        log.warning("launcher: %s", message.get("message"))

    def _stopping(self, _message: Message) -> None:
        """The trainer's container was told to end: this node leaves as if we had been."""
        log.info("the trainer's container is ending: leaving in order")
        signal.raise_signal(signal.SIGTERM)

    def _end(self, member: Member, code: int | None, number: int | None, at_ns: int, why: str) -> None:
        failure = failure_at_exit(member, code, number, why)
        if failure is not None and failure.age_s == 0.0:
            failure = dataclasses.replace(failure, age_s=max(0.0, (time.monotonic_ns() - at_ns) / 1e9))
        self._finish(member, failure)

    def _finish(self, member: Member, failure: Failure | None) -> None:
        survey(member)
        log.info("%s ended: %s", member.name, failure.message if failure else "well")
        self._node.gone(member)
        self._node.members.update(member, phase=MemberPhase.EXITED, failure=failure)
        self._node.settled(member)


def failure_at_exit(member: Member, code: int | None, number: int | None, why: str) -> Failure | None:
    """What the end of a process says, together with what was known before. None: it ended well."""
    before, step = member.status.failure, member.step()
    if before is not None:
        return dataclasses.replace(before, exit_code=code, signal=number)
    if number is not None:
        why = why or member.kill_reason
        message = f"killed by {_signal_name(number)}" + (f": {why}" if why else "")
        return Failure(Cause.SIGNALED, message, signal=number, step=step)
    if code is None:
        return Failure(Cause.EXITED, why, step=step)
    if code == 0 and (not member.status.elastic or member.complete is not None):
        return None
    early = "ended too early, with code 0" if code == 0 else f"ended with code {code}"
    return Failure(Cause.EXITED, early, exit_code=code, step=step)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
