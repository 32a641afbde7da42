"""Have ranks of this node profile some steps, as people ask; pass on what each of them says of it.

A rank says at once that it has noted the request, and later what came of it. The agent answers for a rank
that cannot: one that has no SDK, or an older one, whose process ends, that leaves the generation, or that
takes too long. Nothing here changes what the agent's core knows."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.background_tasks import BackgroundTasks
from controlplane.core.records.diagnosis import OperatorTime, RankProfiled
from controlplane.core.records.model import MemberPhase
from holdfast import removal
from holdfast.ipc.messages import agent as agent_msg
from holdfast.ipc.messages import profiles as profile_msg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from controlplane.core.records.diagnosis import ProfileRank
    from holdfast.ipc.messages.agent import AgentMessage

TAKEN_S = 10.0
"""How long a rank may take to note a request. Its SDK answers from a thread of its own, so that only native
code which holds the interpreter's lock delays it."""
LATE_S = 2.0
"""How long after its own end of time, or after it has left the generation, a rank may say what came of it."""
_LOOK_S = 0.1
_REASON_MAX = 600
log = logging.getLogger("holdfast.agent")


@dataclass(slots=True)
class _Asked:
    """One request that is not answered yet."""

    order: ProfileRank
    taken: bool = False  # the rank has noted it
    recorded: bool = False  # its steps are over: what becomes of the generation does not matter any more
    answer: profile_msg.Profiled | None = None


class RankProfiles:
    """The profiles of one node's ranks, one at a time per rank.

    `trace` says where a member puts the trace of a request, `push` sends a message to a member (False: it is
    not connected), `send` sends an answer to the leader."""

    def __init__(
        self,
        members: NodeState,
        trace: Callable[[str, str], Path],
        push: Callable[[str, AgentMessage], bool],
        send: Callable[[RankProfiled], None],
    ) -> None:
        self._members, self._trace, self._push, self._send = members, trace, push, send
        self._asked: dict[str, _Asked] = {}  # by member
        self._tasks = BackgroundTasks()

    def order(self, order: ProfileRank) -> None:
        """Begin a profile; answered by one RankProfiled."""
        member = self._members.get(order.member)
        reason = self._obstacle(order, member)
        if reason or member is None:
            self._refuse(order, reason)
            return
        asked = self._asked[order.member] = _Asked(order)
        self._tasks.begin(self._follow(asked, member))

    def take(self, member: LocalMember, message: profile_msg.ProfileTaken | profile_msg.Profiled) -> None:
        """Take what a rank says of its profile. An answer to a request that was given up is left out."""
        asked = self._asked.get(member.name)
        if asked is None or message.request != asked.order.request:
            return
        asked.taken = True
        if isinstance(message, profile_msg.Profiled):
            asked.answer = message
        else:
            asked.recorded = asked.recorded or message.recorded

    async def close(self) -> None:
        """Give up every profile."""
        await self._tasks.close()

    def _obstacle(self, order: ProfileRank, member: LocalMember | None) -> str:
        """Why this profile cannot begin; "": it can."""
        if member is None or not member.alive:
            return f"there is no process {order.member} on this node"
        if not member.status.elastic:
            return "its script does not use Holdfast's SDK, so nothing in it can be asked for a profile"
        if busy := self._asked.get(order.member):
            return (
                f"it is being profiled already, for request {busy.order.request}: ask again when that is done"
            )
        if reason := _left(order, member):
            return reason
        message = agent_msg.Profile(
            request=order.request,
            generation=order.generation,
            steps=order.steps,
            path=str(self._trace(order.member, order.request)),
            timeout_s=order.timeout_s,
            bytes_max=order.bytes_max,
        )
        return "" if self._push(order.member, message) else "its process is not connected to the agent now"

    async def _follow(self, asked: _Asked, member: LocalMember) -> None:
        """Wait for the rank's answer, and answer for it when none can come."""
        order, began, left_at = asked.order, time.monotonic(), 0.0
        reason = ""
        try:
            while asked.answer is None and not reason:
                await asyncio.sleep(_LOOK_S)
                spent = time.monotonic() - began
                left_at = left_at or (spent if _left(order, member) else 0.0)
                if asked.answer is None:
                    reason = _given_up(asked, member, spent, left_at)
        finally:
            del self._asked[order.member]
        if asked.answer is not None:
            self._send(self._profiled(order, asked.answer))
            return
        if not member.alive:
            self._remove_parts(order)
        self._refuse(order, reason)

    def _profiled(self, order: ProfileRank, answer: profile_msg.Profiled) -> RankProfiled:
        facts = self._members.facts
        return RankProfiled(
            node=facts.node,
            incarnation=facts.incarnation,
            job=order.job,
            member=order.member,
            request=order.request,
            generation=order.generation,
            reason=answer.reason[:_REASON_MAX],
            path="" if answer.reason else str(self._trace(order.member, order.request)),
            bytes=answer.bytes,
            first_step=answer.first_step,
            steps=answer.steps,
            cpu_s=answer.cpu_s,
            device_s=answer.device_s,
            operators=tuple(
                OperatorTime(each.name or "?", each.calls, each.cpu_s, each.device_s)
                for each in answer.operators
            ),
            no_table=answer.no_table[:_REASON_MAX],
        )

    def _refuse(self, order: ProfileRank, reason: str) -> None:
        facts = self._members.facts
        log.info("no profile of %s: %s", order.member, reason)
        names = order.job, order.member, order.request
        self._send(RankProfiled(facts.node, facts.incarnation, *names, order.generation, reason))

    def _remove_parts(self, order: ProfileRank) -> None:
        """Remove what a rank that has died left of a trace."""
        path = self._trace(order.member, order.request)
        for draft in path.parent.glob(f"{path.name}.*"):
            try:
                removal.draft(draft)
            except OSError as error:
                log.warning("%s cannot be removed: %s", draft, error)


def _left(order: ProfileRank, member: LocalMember) -> str:
    """Why a rank does not train in this generation; "": it does."""
    status = member.status
    if status.generation != order.generation:
        return f"generation {order.generation} has ended: ask again"
    if status.phase is not MemberPhase.RUNNING:
        return f"it does not train now, it is {status.phase.value}: ask again when the job runs"
    return ""


def _given_up(asked: _Asked, member: LocalMember, spent_s: float, left_at: float) -> str:
    """Why no answer is to be expected any more; "": there may be one."""
    order = asked.order
    if not member.alive:
        failure = member.status.failure
        how = f": {failure.message}" if failure is not None and failure.message else ""
        return f"its process has ended{how}"
    if not asked.taken and spent_s > TAKEN_S:
        return (
            f"it has not noted the request for {TAKEN_S:g} s: its Holdfast is older than this agent's, or "
            "its process hangs"
        )
    if left_at and not asked.recorded and spent_s > left_at + LATE_S:
        return _left(order, member) or f"generation {order.generation} was left meanwhile: ask again"
    if spent_s > order.timeout_s + LATE_S:
        what = "its trace was not written" if asked.recorded else f"{order.steps} steps were not complete"
        return f"given up: {what} within {order.timeout_s:g} s"
    return ""
