"""Admit ranks to the node and pass on what they report.

A process is admitted as a member when its pid, or the leader of its session, is the one that the launcher
reported for that member. A rank may connect before the launcher's message about it has arrived: such a
connection waits."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from agent.deciding import events as ev
from holdfast.ipc.messages import rank as rank_msg
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from holdfast.ipc.frames import Message
    from holdfast.ipc.messages.agent import AgentMessage

log = logging.getLogger("holdfast.agent")


class Admission:
    """The node as the rank server sees it.

    `greet` takes a hello and returns the answers, `decide` passes any other message to the core,
    `take_groups` receives a member's answer to a request for its stacks, `take_profile` what it says of its
    profile, `drop` counts what was dropped."""

    def __init__(
        self,
        node: str,
        members: NodeState,
        *,
        greet: Callable[[str, rank_msg.Hello], list[AgentMessage]],
        decide: Callable[[ev.Event], None],
        take_groups: Callable[[LocalMember, rank_msg.GroupProgress], None],
        take_profile: Callable[[LocalMember, ProfileTaken | Profiled], None],
        drop: Callable[[str, str], None],
    ) -> None:
        self._node, self._members = node, members
        self._greet, self._decide, self._take_groups, self._drop = greet, decide, take_groups, drop
        self._take_profile = take_profile

    def admit(self, member: str, pid: int) -> str:
        """Why this process is refused as that member; "" when it is admitted."""
        known = self._members.get(member)
        if known is None:
            return f"there is no member {member!r:.120} on node {self._node}"
        if not known.alive:
            return f"member {member} is already recorded as dead"
        if pid != known.status.pid and not _of_session(pid, known.status.pid):
            return f"member {member} is process {known.status.pid}, not {pid}"
        return ""

    def unnamed(self, member: str) -> bool:
        """Whether the launcher has yet to name this member's process: a rank may connect before that."""
        known = self._members.get(member)
        return known is not None and known.alive and not known.status.pid

    def joined(self, member: str, frame: Message) -> list[AgentMessage]:
        """Take an admitted rank's hello and return the answers to it. Raises BadMessage."""
        return self._greet(member, rank_msg.Hello.decode(frame))

    def receive(self, member: str, frame: Message) -> None:
        """Take a message of an admitted rank. Raises BadMessage."""
        message, known = rank_msg.from_rank(frame), self._members.get(member)
        if known is not None and known.alive and isinstance(message, rank_msg.GroupProgress):
            self._take_groups(known, message)
        if known is not None and isinstance(message, ProfileTaken | Profiled):
            self._take_profile(known, message)
        self._decide(ev.RankReported(member, message))

    def left(self, member: str) -> None:
        """Note that a rank disconnected. What that means is decided by its process's exit, or by its
        silence."""
        log.debug("%s disconnected", member)

    def drop(self, kind: str, reason: str) -> None:
        """Count and log something that was dropped."""
        self._drop(kind, reason)


def _of_session(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader
    except ProcessLookupError:
        return False
