"""Makes room for snapshots when ranks ask for it: in a thread, for every page is put in memory at once."""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
from typing import TYPE_CHECKING

from agent.deciding.events import Room
from controlplane.core.records.model import MemberPhase
from holdfast import removal
from holdfast.ipc.arena import SLOTS, Arena
from holdfast.ipc.shm import PAGE_BYTES, ArenaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.daemon.node import Node
    from agent.deciding.member import Member
    from agent.host.paths import Paths

_GONE_ON = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
log = logging.getLogger("holdfast.agent.arenas")


class Arenas:
    """One arena per member that tracks its state. Asked twice, it answers twice and makes one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.rooms = Rooms(node.paths, self._gone_on)
        self._making: dict[str, asyncio.Task[None]] = {}

    def ask(self, member: Member, slot_bytes: int) -> None:
        """Answer with an arena whose slots have this room, or with why there is none."""
        if member.arena is not None and member.arena.slot_bytes >= slot_bytes:
            self._answer(member)
        elif member.name not in self._making:
            task = asyncio.get_running_loop().create_task(self._make(member, slot_bytes))
            self._making[member.name] = task
            task.add_done_callback(lambda _: self._making.pop(member.name, None))

    def changed(self, member: Member) -> None:
        """Something was brought into a member's arena, which may have been made anew for it: a rank that
        used the old one is told."""
        if member.arena is not None and self._size(member.name) != _file_bytes(member.arena):
            self.ask(member, member.arena.slot_bytes + 1)

    def _gone_on(self, name: str) -> bool:
        member = self._node.members.get(name)
        return member is not None and member.status.phase in _GONE_ON

    def _size(self, member: str) -> int:
        try:
            return self._node.paths.arena(member).stat().st_size
        except FileNotFoundError:
            return 0

    async def close(self) -> None:
        """Wait for what is being made."""
        await asyncio.gather(*self._making.values())

    async def _make(self, member: Member, slot_bytes: int) -> None:
        path = self._node.paths.arena(member.name)
        try:
            fresh = await asyncio.to_thread(self.rooms.room, member.name, slot_bytes)
        except (ArenaError, OSError) as error:
            log.error("%s gets no arena: %s", member.name, error)
            self._node.gate.push(member.name, {"op": "arena_failed", "reason": str(error)})
            self._node.decide(Room(member.name, str(error)[:2000]))
            return
        if self._node.members.get(member.name) is not member:  # dismissed meanwhile
            removal.file(path)
            await asyncio.to_thread(fresh.close)
            return
        older, member.arena = member.arena, fresh
        self._node.decide(Room(member.name))
        self._answer(member)
        if older is not None:
            asyncio.get_running_loop().run_in_executor(None, older.close)

    def _answer(self, member: Member) -> None:
        assert member.arena is not None
        answer = {"op": "arena", "path": str(member.arena.path), "slot_bytes": member.arena.slot_bytes}
        self._node.gate.push(member.name, answer)


def _file_bytes(arena: Arena) -> int:
    return PAGE_BYTES + SLOTS * arena.slot_bytes


class Rooms:
    """Makes arenas, for ranks and for what is loaded or fetched; safe to use from threads. `gone_on`: whether
    a member's rank does not wait for a state any more."""

    def __init__(self, paths: Paths, gone_on: Callable[[str], bool]) -> None:
        self._paths, self._gone_on = paths, gone_on
        self._locks: collections.defaultdict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def to_fill(self, member: str, slot_bytes: int) -> Arena:
        """The same, for an order to bring a state into it. Raises ArenaError also when the rank has gone on
        without it: its slots are its own again."""
        if self._gone_on(member):
            raise ArenaError(f"{member} does not wait for a state any more: the order came too late")
        return self.room(member, slot_bytes)

    def room(self, member: str, slot_bytes: int) -> Arena:
        """The arena that is there (a checkpoint may be loaded in it) if it is large enough, or a new one in
        its place. Blocks; close it afterwards. Raises ArenaError."""
        path = self._paths.arena(member)
        with self._locks[member]:
            try:
                found = Arena.open(path, touched=False)
            except ArenaError:
                return Arena.create(path, slot_bytes)
            if found.slot_bytes >= slot_bytes:
                return found
            found.close()
            return Arena.create(path, slot_bytes)
