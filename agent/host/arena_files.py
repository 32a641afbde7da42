"""Open or create the arena files of a node's members, one at a time per member, from any thread."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING

from holdfast.ipc.arena import Arena
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host.paths import Paths


class ArenaFiles:
    """Arenas for ranks that ask for one, and for states that are loaded or fetched. Thread-safe.

    `gone_on`: whether a member's rank no longer waits for a state."""

    def __init__(self, paths: Paths, gone_on: Callable[[str], bool]) -> None:
        self._paths, self._gone_on = paths, gone_on
        self._locks: collections.defaultdict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def ensure_to_fill(self, member: str, slot_bytes: int) -> Arena:
        """Like `ensure`, for an order to bring a state into the arena.

        Also raises ArenaError when the rank has gone on without that state: then it writes its own snapshots
        to the slots, and an order that comes this late must not."""
        if self._gone_on(member):
            raise ArenaError(f"{member} does not wait for a state any more: the order came too late")
        return self.ensure(member, slot_bytes)

    def ensure(self, member: str, slot_bytes: int) -> Arena:
        """Open the member's arena, or create one in its place when it is missing or too small.

        A checkpoint may be loaded in it already, so one that fits is kept. Blocks; close the result
        afterwards. Raises ArenaError."""
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
