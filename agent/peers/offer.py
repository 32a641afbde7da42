"""Open and pin a snapshot of a member of this node, with the digests of its chunks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent.peers.blocks import SnapshotInfo, digests_of
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from controlplane.core.records.model import MemberStatus
    from holdfast.ipc.arena import SlotView


class Offer:
    """A pinned slot: it is not overwritten until this is closed."""

    def __init__(self, held: SnapshotInfo, slot: SlotView) -> None:
        self.held, self._slot = held, slot

    @property
    def content(self) -> tuple[int, ...]:
        """Identifies this content of the slot among all that it held, or will hold."""
        slot = self._slot
        return slot.index, slot.sequence, slot.generation, slot.step, slot.data_bytes, slot.header_bytes

    @property
    def memory(self) -> memoryview:
        """The slot's whole area."""
        return self._slot.arena.area(self._slot.index)

    def close(self) -> None:
        """Unpin the slot and close its arena."""
        self._slot.arena.unpin(self._slot)
        self._slot.arena.close()


def newest(path: Path, status: MemberStatus, released_step: int) -> Offer | None:
    """The newest snapshot up to `released_step` in this arena; None when there is none. Raises ArenaError."""

    def choose(arena: Arena) -> SlotView | None:
        ready = [s for s in arena.slots if s.state == SlotState.READY and s.step <= released_step]
        return max(ready, key=lambda s: (s.generation, s.step), default=None)

    return offered(path, status, choose)


def offered(path: Path, status: MemberStatus, choose: Callable[[Arena], SlotView | None]) -> Offer | None:
    """The slot of this arena that `choose` returns, pinned; None when there is none.

    Raises ArenaError, and LayoutError on a slot whose header is damaged: that one is not pinned."""
    if not path.exists():
        return None
    with contextlib.ExitStack() as undo:
        arena = undo.enter_context(Arena.open(path))
        slot = choose(arena)
        if slot is None:
            return None
        arena.pin(slot)
        undo.callback(arena.unpin, slot)
        offer = Offer(held_in(slot, status), slot)
        undo.pop_all()
        return offer


def held_in(slot: SlotView, status: MemberStatus, *, digests: bool = True) -> SnapshotInfo:
    """What a slot of this member's arena holds. With `digests` every byte of it is read."""
    return SnapshotInfo(
        job=status.job,
        member=status.member,
        rank=status.rank,
        shard=layout.shard(slot.header),
        step=slot.step,
        generation=slot.generation,
        data_bytes=slot.data_bytes,
        header_bytes=slot.header_bytes,
        digests=digests_of(slot) if digests else b"",
    )
