"""Read the ranks' progress pages a few times a second, for the core to judge their progress."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent.deciding.events import Looked
from agent.deciding.progress import PageReading
from holdfast.ipc.progress_page import ACTIVITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding import events as ev
    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from holdfast.ipc.progress_page import ProgressPage


class PageReader:
    """Looks at the progress pages of one node's ranks."""

    def __init__(self, members: NodeState, look_every_s: float, decide: Callable[[ev.Event], None]) -> None:
        self._members, self._look_every_s, self._decide = members, look_every_s, decide
        self._seen: dict[str, int] = {}  # how many marks of each member have been read

    async def run(self) -> None:
        """Look at regular intervals until cancelled."""
        while True:
            await asyncio.sleep(self._look_every_s)
            self.look()

    def look(self) -> None:
        """Look at every rank once, and send the core what was seen."""
        members = list(self._members)
        sights = [self._sight(member, member.page) for member in members if member.page is not None]
        self._decide(Looked({sight.member: sight for sight in sights if sight is not None}))
        alive = {member.name for member in members if member.alive}
        self._seen = {name: seen for name, seen in self._seen.items() if name in alive}

    def _sight(self, member: LocalMember, page: ProgressPage) -> PageReading | None:
        code, since_ns = page.activity, page.marked_ns
        if not 0 <= code < len(ACTIVITIES) or since_ns <= 0:
            return None
        self._seen[member.name], gaps = page.gaps(self._seen.get(member.name, 0))
        job, limit_s = member.status.job, max(page.limit_ns, 0) / 1e9
        return PageReading(member.name, job, ACTIVITIES[code], since_ns / 1e9, tuple(gaps), limit_s)
