"""Take in what the launcher reports of processes, and judge what the end of each means.

The launcher repeats its list of running members at every attach and its `exited` messages until they are
acknowledged, so a new agent learns everything that it missed. A process that ends with code 0 ended well only
if nothing more was expected of it: a plain script, a member of a completed job, or one that may have returned
from its elastic function."""

from __future__ import annotations

import dataclasses
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.member import LocalMember
from controlplane.core.records.diagnosis import RankEnded
from controlplane.core.records.model import NO_STEP, Cause, Failure, MemberPhase, MemberStatus
from holdfast.ipc.messages import launcher as msg

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.events import LauncherReported
    from agent.deciding.node_state import NodeState
    from holdfast.ipc.messages.fields import Record


WROTE = "output"
_LOOK_FIRST_S = 0.02
_LOOK_EVERY_S = 0.5
"""The longest pause between two looks whether a script has written output; each look is a `stat`."""


class Exits:
    """The handlers of the launcher's messages."""

    def __init__(self, state: NodeState, note_beat: Callable[[LocalMember], None]) -> None:
        self._state, self._note_beat = state, note_beat
        self._now_ns = 0  # when the message in hand arrived, on the launcher's clock
        self.launcher = ""  # id of the launcher that sent the last hello; "": none yet
        self._handlers: dict[type[Record], Callable[[Any], None]] = {
            msg.LauncherHello: self._hello,
            msg.MemberWarm: self._warm,
            msg.MemberRunning: self._running,
            msg.MemberExited: self._exited,
            msg.MemberFailed: self._failed,
        }

    def take(self, event: LauncherReported) -> None:
        """Take one message of the launcher. Raises KeyError for one that has no handler here."""
        self._now_ns = event.now_ns
        self._handlers[type(event.message)](event.message)

    def lost(self) -> None:
        """Note that the launcher died, and its members with it."""
        for member in self._state:
            if member.alive:
                self._end(member, None, int(signal.SIGKILL), self._now_ns, "its launcher died")

    def _hello(self, hello: msg.LauncherHello) -> None:
        """Adopt the members that the launcher runs, and end those that it should have and has not.

        Members that this agent launches itself are left alone: their commands may still be on the way."""
        self.launcher = hello.launcher
        running = {entry.member for entry in hello.members}
        for entry in hello.members:
            self._adopt(entry)
        for member in self._state:
            if member.alive and member.name not in running and member.launch is None:
                self._end(member, None, None, self._now_ns, "its process is gone; how it ended is unknown")

    def _adopt(self, entry: msg.ProcessEntry) -> None:
        name, member = entry.member, self._state.get(entry.member)
        if member is None:
            job = name.rpartition(".")[0]
            member = LocalMember(MemberStatus(name, job, MemberPhase.LAUNCHED))
            self._state.take(member)
        if entry.state == "running":
            member.ordered_to_run = True
        early = member.status.phase in (MemberPhase.LAUNCHED, MemberPhase.WARM)
        phases = {"warm": MemberPhase.WARM, "running": MemberPhase.STARTING}
        phase = phases.get(entry.state, member.status.phase) if early else member.status.phase
        if member.status.elastic:
            self._note_beat(member)
        self._state.do(fx.Adopt(name))
        self._state.update(member, pid=entry.pid, phase=phase)
        if phase == MemberPhase.STARTING:
            self._watch_output(member, _LOOK_FIRST_S)

    def _warm(self, warm: msg.MemberWarm) -> None:
        member = self._state.get(warm.member)
        if member is None or not member.alive:
            return
        self._state.note(member, pid=warm.pid)
        if member.status.phase == MemberPhase.LAUNCHED:
            phase = MemberPhase.LAUNCHED if member.ordered_to_run else MemberPhase.WARM
            self._state.update(member, phase=phase)

    def _running(self, running: msg.MemberRunning) -> None:
        member = self._state.get(running.member)
        if member is None or not member.alive:
            return
        if member.status.phase in (MemberPhase.LAUNCHED, MemberPhase.WARM):
            self._state.update(member, phase=MemberPhase.STARTING, pid=running.pid)
            self._watch_output(member, _LOOK_FIRST_S)

    def _watch_output(self, member: LocalMember, in_s: float) -> None:
        """Look for the first output of a script that does not use the SDK: its only sign of progress."""
        self._state.later(in_s, partial(self._look, member, in_s))

    def _look(self, member: LocalMember, waited_s: float) -> None:
        if not member.alive or member.status.elastic or member.status.phase != MemberPhase.STARTING:
            return
        if self._state.view.wrote(member.name):
            self._state.update(member, activity=WROTE)
        else:
            self._watch_output(member, min(2 * waited_s, _LOOK_EVERY_S))

    def _exited(self, exited: msg.MemberExited) -> None:
        member = self._state.get(exited.member)
        if member is None:
            self._state.do(fx.Command(msg.ForgetCommand(exited.member)))
        elif member.alive:
            self._end(member, exited.code, exited.signal, exited.at_ns, "")

    def _failed(self, failed: msg.MemberFailed) -> None:
        member = self._state.get(failed.member)
        if member is None or not member.alive:
            return
        failure = Failure(Cause.LAUNCH_FAILED, failed.message[:2000])
        self._state.failed(member.status.job, member.name, failure)
        self._finish(member, failure)

    def _end(self, member: LocalMember, code: int | None, number: int | None, at_ns: int, why: str) -> None:
        failure = failure_at_exit(member, self._state.step(member), code, number, why)
        if failure is not None and failure.age_s == 0.0:
            failure = dataclasses.replace(failure, age_s=max(0.0, (self._now_ns - at_ns) / 1e9))
        if failure is not None:
            self._report(member, failure, why if number is not None else "")
        self._finish(member, failure)

    def _report(self, member: LocalMember, failure: Failure, why: str) -> None:
        """Report an end that was not as it should be. What a job's end does to its processes is no news."""
        ordered = why or (member.kill_reason if failure.signal is not None else "")
        if member.complete is not None and failure.signal is not None:
            return
        facts, status = self._state.facts, member.status
        end = RankEnded(
            facts.node,
            facts.incarnation,
            status.job,
            member.name,
            rank=status.rank,
            generation=status.generation,
            step=failure.step,
            began_step=member.form.resume.step if member.form is not None else NO_STEP,
            exit_code=failure.exit_code,
            signal=failure.signal,
            ordered=ordered,
        )
        self._state.do(fx.ReportEnd(end, status.pid, failure.age_s))

    def _finish(self, member: LocalMember, failure: Failure | None) -> None:
        self._state.survey(member)
        self._state.log(f"{member.name} ended: {failure.message if failure else 'well'}")
        self._state.gone(member)
        self._state.update(member, phase=MemberPhase.EXITED, failure=failure)
        if member.complete is not None:  # nothing is kept of a completed job
            self._state.dismiss(member)


def failure_at_exit(
    member: LocalMember, step: int, code: int | None, number: int | None, why: str
) -> Failure | None:
    """The failure that the end of a process means, given what was known of it before; None when it ended
    well.

    `code`: the exit code; `number`: the signal that killed it; both None when nobody saw its end."""
    before = member.status.failure
    if before is not None:
        return dataclasses.replace(before, exit_code=code, signal=number)
    if number is not None:
        why = why or member.kill_reason
        message = f"killed by {_signal_name(number)}" + (f": {why}" if why else "")
        return Failure(Cause.SIGNALED, message, signal=number, step=step)
    if code is None:
        return Failure(Cause.EXITED, why, step=step)
    if code == 0 and (not member.status.elastic or member.complete is not None or member.behind):
        return None
    early = "ended too early, with code 0" if code == 0 else f"ended with code {code}"
    return Failure(Cause.EXITED, early, exit_code=code, step=step)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
