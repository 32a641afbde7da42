"""Create arenas for ranks that ask for one.

This takes a thread: every page is put in memory at once, so that a snapshot can never fail half way for lack
of memory. Where there is no room, it is tried again once there is; a rank takes an arena at any time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent.deciding.events import ArenaAnswer
from agent.host.arena_files import ArenaFiles
from controlplane.core.records.model import MemberPhase
from holdfast import removal
from holdfast.ipc.arena import SLOTS
from holdfast.ipc.messages.agent import ArenaFailed, ArenaMade
from holdfast.ipc.shm import PAGE_BYTES, ArenaError, free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding import events as ev
    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState
    from agent.host.paths import Paths

_GONE_ON = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
AGAIN_S, AGAIN_MOST_S = 5.0, 300.0
"""How often to look whether there is room by now. It doubles each time that the file system had room and
there was no arena all the same, as where memory is short: to try puts pages in memory."""
log = logging.getLogger("holdfast.agent.arenas")


class Arenas:
    """One arena per member that tracks its state. Two requests get two answers and one arena.

    `push` sends a message to a member, `decide` passes the outcome to the core."""

    def __init__(
        self,
        paths: Paths,
        members: NodeState,
        *,
        push: Callable[[str, ArenaMade | ArenaFailed], object],
        decide: Callable[[ev.Event], None],
    ) -> None:
        self._paths, self._members, self._push, self._decide = paths, members, push, decide
        self.files = ArenaFiles(paths, self._gone_on)
        self._making: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}  # for room

    def ask(self, member: LocalMember, slot_bytes: int, again_s: float = 0.0) -> None:
        """Answer with an arena that has slots of this size, or with the reason why there is none.

        `again_s`: for how long it was waited between looks for room; 0: it was not."""
        if (waiting := self._waiting.pop(member.name, None)) is not None:
            waiting.cancel()
        if member.arena is not None and member.arena.slot_bytes >= slot_bytes:
            self._answer(member)
        elif member.name not in self._making:
            task = asyncio.get_running_loop().create_task(self._make(member, slot_bytes, again_s))
            self._making[member.name] = task
            task.add_done_callback(lambda _: self._making.pop(member.name, None))

    def changed(self, member: LocalMember) -> None:
        """Send the rank its new arena, if bringing a state into it has replaced the old file by a larger
        one."""
        if member.arena is not None and self._size(member.name) != _file_bytes(member.arena.slot_bytes):
            self.ask(member, member.arena.slot_bytes + 1)

    def _gone_on(self, name: str) -> bool:
        member = self._members.get(name)
        return member is not None and member.status.phase in _GONE_ON

    def _size(self, member: str) -> int:
        try:
            return self._paths.arena(member).stat().st_size
        except FileNotFoundError:
            return 0

    async def close(self) -> None:
        """Wait for the arenas that are being created, and for no room."""
        await asyncio.gather(*self._making.values())
        for waiting in self._waiting.values():
            waiting.cancel()
        await asyncio.gather(*self._waiting.values(), return_exceptions=True)

    async def _make(self, member: LocalMember, slot_bytes: int, again_s: float) -> None:
        path = self._paths.arena(member.name)
        try:
            fresh = await asyncio.to_thread(self.files.ensure, member.name, slot_bytes)
        except (ArenaError, OSError) as error:
            log.error("no shared memory for the snapshots of %s: %s", member.name, error)
            self._push(member.name, ArenaFailed(str(error)))
            self._decide(ArenaAnswer(member.name, str(error)[:2000]))
            waiting = self._await_room(member, slot_bytes, min(2 * again_s or AGAIN_S, AGAIN_MOST_S))
            self._waiting[member.name] = asyncio.get_running_loop().create_task(waiting)
            return
        if self._members.get(member.name) is not member:  # it was dismissed meanwhile
            removal.file(path)
            await asyncio.to_thread(fresh.close)
            return
        older, member.arena = member.arena, fresh
        self._decide(ArenaAnswer(member.name))
        self._answer(member)
        if older is not None:
            asyncio.get_running_loop().run_in_executor(None, older.close)

    async def _await_room(self, member: LocalMember, slot_bytes: int, again_s: float) -> None:
        """Ask again once there seems to be room, unless the member is gone."""
        folder = self._paths.arena(member.name).parent
        while self._members.get(member.name) is member:
            await asyncio.sleep(again_s)
            if folder.is_dir() and free_bytes(folder) >= _file_bytes(slot_bytes):
                del self._waiting[member.name]  # this task
                self.ask(member, slot_bytes, again_s)
                return
        self._waiting.pop(member.name, None)

    def _answer(self, member: LocalMember) -> None:
        assert member.arena is not None
        answer = ArenaMade(str(member.arena.path), member.arena.slot_bytes)
        self._push(member.name, answer)


def _file_bytes(slot_bytes: int) -> int:
    return PAGE_BYTES + SLOTS * slot_bytes
