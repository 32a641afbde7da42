"""Makes room for snapshots when ranks ask for it: in a thread, for every page is put in memory at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent.checkpoint.arena import Arena
from agent.checkpoint.shm import ArenaError

if TYPE_CHECKING:
    from pathlib import Path

    from agent.members import Member
    from agent.node import Node

log = logging.getLogger("holdfast.agent.arenas")


class Arenas:
    """One arena per member that tracks its state. Asked twice, it answers twice and makes one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._making: dict[str, asyncio.Task[None]] = {}

    def ask(self, member: Member, slot_bytes: int) -> None:
        """Answer with an arena whose slots have this room, or with why there is none."""
        if member.arena is not None and member.arena.slot_bytes >= slot_bytes:
            self._answer(member)
        elif member.name not in self._making:
            task = asyncio.get_running_loop().create_task(self._make(member, slot_bytes))
            self._making[member.name] = task
            task.add_done_callback(lambda _: self._making.pop(member.name, None))

    async def close(self) -> None:
        """Wait for what is being made."""
        await asyncio.gather(*self._making.values())

    async def _make(self, member: Member, slot_bytes: int) -> None:
        path = self._node.paths.arena(member.name)
        try:
            fresh = await asyncio.to_thread(_room, path, slot_bytes)
        except (ArenaError, OSError) as error:
            log.error("%s gets no arena: %s", member.name, error)
            self._node.gate.push(member.name, {"op": "arena_failed", "reason": str(error)})
            self._node.members.update(member, no_room=str(error)[:2000])
            return
        if self._node.members.get(member.name) is not member:  # dismissed meanwhile
            fresh.close()
            path.unlink(missing_ok=True)
            return
        if member.arena is not None:
            member.arena.close()
        member.arena = fresh
        self._node.members.update(member, no_room="")
        self._answer(member)

    def _answer(self, member: Member) -> None:
        assert member.arena is not None
        answer = {"op": "arena", "path": str(member.arena.path), "slot_bytes": member.arena.slot_bytes}
        self._node.gate.push(member.name, answer)


def _room(path: Path, slot_bytes: int) -> Arena:
    """The arena that is there (a checkpoint may be loaded in it) if it is large enough, or a new one."""
    try:
        found = Arena.open(path)
    except ArenaError:
        return Arena.create(path, slot_bytes)
    if found.slot_bytes >= slot_bytes:
        return found
    found.close()
    return Arena.create(path, slot_bytes)
