"""Handle ranks that have stopped beating: kill them, or ask the leader when only the interpreter is stuck.

A process that is stopped (SIGSTOP, stuck in the kernel) writes no stacks: it counts as dead. One that still
writes its stacks runs native code that holds the interpreter's lock. That is a hang, and the leader judges it
as one, once it has the stack reports of all ranks. If the leader has not decided within VERDICT_S, the agent
kills the process as if it were stopped."""

from __future__ import annotations

import dataclasses
import signal
from functools import partial
from typing import TYPE_CHECKING

from agent.deciding import effects as fx
from agent.deciding import judging
from controlplane.core.records.model import Cause, Failure, MemberPhase

if TYPE_CHECKING:
    from agent.deciding.events import StacksReported
    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from controlplane.core.records.model import Standing

VERDICT_S = 5.0
"""How long the leader may take: collecting all stack reports (1.7 s at most), and its answer."""

TRACE_CHARS = 6000
"""How much of a silent member's stacks is reported: it becomes part of the reason if the job ends."""

_DEATH_TIMEOUT_S = 2.0
"""How long after SIGKILL a process may live before it counts as dead anyhow."""
_BEATS_MISSED = 1.5
"""Beat intervals without a beat after which a rank that does not answer counts as silent."""


class Silences:
    """Decides what becomes of silent members."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        state.silent = self._begin

    def note_beat(self, member: LocalMember) -> None:
        """Note that a member beats: the question about its silence is settled."""
        member.last_message_at = self._state.now
        if member.mute:
            member.mute = False
            self._state.update(member, stalled_s=0.0, activity="")
        self._state.judge(judging.BeatReceived(member.name))

    def _begin(self, effect: judging.Silent) -> None:
        """Ask for the stacks of a member that has not beaten for its timeout."""
        member = self._state.get(effect.member)
        if member is None or not member.alive or _is_free(member):
            return
        self._state.count("silent")
        self._state.do(fx.TakeStacks(member.name, effect.age_s, member.last_message_at))

    def judge_stacks(self, event: StacksReported) -> None:
        """Decide by the stack report: ask the leader about the member, or kill it."""
        member, report = self._state.get(event.member), event.report
        if member is None or member.last_message_at != event.last_message_at:
            return  # the member has beaten meanwhile, or is gone
        if _is_free(member):
            return
        if not report.frames or member.status.phase is not MemberPhase.RUNNING:
            self._end(event.age_s, member, report)
        elif member.alive:
            member.mute = True
            step = self._state.step(member)
            self._state.update(member, stalled_s=event.age_s, activity=report.activity, step=step)
            self._state.later(VERDICT_S, partial(self._overdue, event, member))

    def _overdue(self, event: StacksReported, member: LocalMember) -> None:
        if member.mute and member.last_message_at == event.last_message_at:
            self._end(event.age_s + VERDICT_S, member, event.report)

    def _end(self, age_s: float, member: LocalMember, report: Standing) -> None:
        if not self._here(member):
            return
        place = f"; it stands at {' < '.join(report.frames[:3])}" if report.frames else ""
        process = f"; {report.process}" if report.process else ""
        step = self._state.step(member)
        message = f"no beat for {age_s:.1f} s{process}{place}"
        failure = Failure(Cause.SILENT, message, step=step, age_s=age_s)
        failure = dataclasses.replace(failure, traceback=report.stacks[:TRACE_CHARS])
        self._state.note(member, failure=failure)
        self._state.kill(member, signal.SIGKILL)
        self._state.later(_DEATH_TIMEOUT_S, partial(self._give_up, member))

    def _give_up(self, member: LocalMember) -> None:
        """Count a member as dead that survived SIGKILL: its process is stuck in the kernel."""
        if self._here(member):
            self._state.gone(member)
            self._state.update(member, phase=MemberPhase.EXITED)

    def _here(self, member: LocalMember) -> bool:
        return member.alive and self._state.get(member.name) is member


def silence_s(member: LocalMember, now: float, beat_interval_s: float) -> float:
    """How long a member that does not answer has been silent, in s; 0 when that is not long."""
    silent_s = now - member.last_message_at
    return silent_s if silent_s >= _BEATS_MISSED * beat_interval_s else 0.0


def _is_free(member: LocalMember) -> bool:
    """Whether the member has finished and its script may go on. From then on its silence is not watched."""
    return member.behind or (member.complete is not None and member.status.phase is MemberPhase.FINISHED)
