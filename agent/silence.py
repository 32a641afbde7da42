"""Ranks of this node that do not beat any more: killed, or, when only the interpreter is stuck, asked about.

A process that is stopped tells nothing: it is dead for us. One that still writes its stacks runs native code
that keeps the interpreter's lock; that is a hang, and the leader judges it as one, once it has heard where
all ranks stand. Without a word of the leader it ends as the stopped one does."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from agent.stacks import TRACE_CHARS
from controlplane.core.model import Cause, Failure, MemberPhase

if TYPE_CHECKING:
    from agent.core import Silent
    from agent.members import Member
    from agent.node import Node
    from controlplane.core.model import Standing

VERDICT_S = 5.0
"""For the leader to collect where all ranks stand (1.7 s at most), and for its word to come."""

_DEATH_TIMEOUT_S = 2.0
_BEATS_MISSED = 1.5
"""Beat intervals without a beat, and without an answer: such a rank is silent."""


def _is_free(member: Member) -> bool:
    """It has finished, and was told that the job is complete: what it does afterwards is its own matter."""
    return member.complete is not None and member.status.phase is MemberPhase.FINISHED


class Silences:
    """What becomes of the silent."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def begin(self, effect: Silent) -> None:
        """A member has not beaten for its timeout."""
        member = self._node.members.get(effect.member)
        if member is None or not member.alive or _is_free(member):
            return
        self._node.count("silent")
        self._node.stacks.testify(member, partial(self._stood, effect.age_s, member.heard_at))

    def heard(self, member: Member) -> None:
        """It speaks: whatever was asked about its silence is settled."""
        member.heard_at = time.monotonic()
        if member.mute:
            member.mute = False
            self._node.members.update(member, stalled_s=0.0, activity="")

    def since_s(self, member: Member) -> float:
        """How long a member that does not answer has not spoken; 0 when that is not long."""
        silent_s = time.monotonic() - member.heard_at
        return silent_s if silent_s >= _BEATS_MISSED * self._node.settings.beat_interval_s else 0.0

    def _stood(self, age_s: float, heard_at: float, member: Member, standing: Standing) -> None:
        """Its stacks are taken, as far as it gave any: it is asked about, or it ends."""
        if member.heard_at != heard_at:
            return  # it has spoken meanwhile
        if not standing.frames or member.status.phase is not MemberPhase.RUNNING:
            self._end(age_s, member, standing)
        elif member.alive:
            member.mute = True
            self._node.members.update(member, stalled_s=age_s, activity=standing.activity, step=member.step())
            loop = asyncio.get_running_loop()
            loop.call_later(VERDICT_S, self._overdue, age_s, heard_at, member, standing)

    def _overdue(self, age_s: float, heard_at: float, member: Member, standing: Standing) -> None:
        if member.mute and member.heard_at == heard_at:
            self._end(age_s + VERDICT_S, member, standing)

    def _end(self, age_s: float, member: Member, standing: Standing) -> None:
        if not member.alive or self._node.members.get(member.name) is not member:
            return
        place = f"; it stands at {' < '.join(standing.frames[:3])}" if standing.frames else ""
        failure = Failure(Cause.SILENT, f"no beat for {age_s:.1f} s{place}", step=member.step(), age_s=age_s)
        failure = dataclasses.replace(failure, traceback=standing.stacks[:TRACE_CHARS])
        self._node.members.note(member, failure=failure)
        self._node.launcher.say(op="signal", member=member.name, signal=int(signal.SIGKILL))
        asyncio.get_running_loop().call_later(_DEATH_TIMEOUT_S, self._give_up, member)

    def _give_up(self, member: Member) -> None:
        """SIGKILL had no effect (a process in the kernel's hands): it is dead for the cluster anyhow."""
        if member.alive and self._node.members.get(member.name) is member:
            self._node.gone(member)
            self._node.members.update(member, phase=MemberPhase.EXITED)
