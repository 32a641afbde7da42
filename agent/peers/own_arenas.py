"""Open snapshots in the arenas of this node's members, for nodes that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.peers.offer import held_in, offered
from holdfast.ipc.arena import Arena, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host.paths import Paths
    from agent.peers.blocks import SnapshotInfo
    from agent.peers.offer import Offer
    from controlplane.core.records.model import MemberStatus


class OwnArenas:
    """The arenas of this node's members. Its calls block: run them in a thread."""

    def __init__(self, paths: Paths, status: Callable[[str], MemberStatus | None]) -> None:
        self._paths, self._status = paths, status

    def listing(self, member: str) -> list[SnapshotInfo]:
        """What this member's READY slots hold, without digests. Raises ArenaError."""
        status, path = self._status(member), self._paths.arena(member)
        if status is None or not path.exists():
            return []
        with Arena.open(path) as arena:
            ready = [slot for slot in arena.slots if slot.state == SlotState.READY]
            return [held_in(slot, status, digests=False) for slot in ready]

    def open(self, member: str, step: int, generation: int) -> Offer | None:
        """The snapshot of this step and generation, pinned; None when it is not here. Raises ArenaError."""
        status = self._status(member)
        if status is None:
            return None
        return offered(
            self._paths.arena(member), status, lambda arena: arena.find(step, generation=generation)
        )
