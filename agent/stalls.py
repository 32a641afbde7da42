"""Looks at the boards of the ranks, a few times a second, and tells who makes no progress."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from agent.board import ACTIVITIES
from agent.progress import Limits, Progress, Resumed, Sight, Stalled
from controlplane.core.model import MemberPhase

if TYPE_CHECKING:
    from agent.board import Board
    from agent.members import Member
    from agent.node import Node

log = logging.getLogger("holdfast.agent")


class Stalls:
    """The looks at one node's ranks."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        limits = Limits(settings.hang_factor, settings.hang_floor_s, settings.hang_first_s)
        self._node, self._progress = node, Progress(limits)
        self._seen: dict[str, int] = {}  # marks, by member

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._progress.look_every_s)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """One look at everyone."""
        self._progress.begin(now)
        members = list(self._node.members)
        for member in members:
            self._look(member)
        alive = {member.name for member in members if member.alive}
        self._seen = {name: seen for name, seen in self._seen.items() if name in alive}
        self._progress.forget(alive, {member.status.job for member in members if member.alive})

    def _look(self, member: Member) -> None:
        board, status = member.board, member.status
        sight = None if board is None else self._sight(member, board)
        if sight is None or status.phase is not MemberPhase.RUNNING:
            if status.stalled_s > 0:
                self._node.members.update(member, stalled_s=0.0, activity="")
            return
        change = self._progress.look(sight)
        if isinstance(change, Stalled):
            log.warning("%s: no progress for %.1f s (%s)", member.name, change.age_s, change.activity)
            self._node.count("stalled")
            self._node.members.update(
                member, stalled_s=change.age_s, activity=change.activity, step=member.step()
            )
        elif isinstance(change, Resumed):
            log.info("%s makes progress again", member.name)
            self._node.members.update(member, stalled_s=0.0, activity="")

    def _sight(self, member: Member, board: Board) -> Sight | None:
        code, since_ns = board.activity, board.marked_ns
        if not 0 <= code < len(ACTIVITIES) or since_ns <= 0:
            return None
        self._seen[member.name], gaps = board.gaps(self._seen.get(member.name, 0))
        job, limit_s = member.status.job, max(board.limit_ns, 0) / 1e9
        return Sight(member.name, job, ACTIVITIES[code], since_ns / 1e9, tuple(gaps), limit_s)
