"""Fill a slot: from blocks that come over the wire, and from what other slots hold already."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent.peers.blocks import PeerError, Place, SnapshotInfo, digest, places
from holdfast import removal
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, align

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.ipc.arena import Arena, SlotView, SlotWriter


class Filling:
    """Fills the `missing` chunks of a slot from blocks, in order.

    Each chunk is verified when it is complete, and `came` is called with it."""

    def __init__(
        self,
        memory: memoryview,
        held: SnapshotInfo,
        missing: Sequence[int],
        came: Callable[[memoryview], None] | None = None,
    ) -> None:
        self._memory, self._held, self._came = memory, held, came
        self._places = places(held.data_bytes, held.header_bytes)
        self._missing = list(missing)
        self._next = 0  # index into `_missing`
        self._at = 0  # bytes of that chunk that have arrived
        self.received = 0

    @property
    def whole(self) -> bool:
        """Whether every missing chunk has arrived."""
        return self._next == len(self._missing)

    def take(self, block: memoryview) -> None:
        """Put the next block in its place. Raises PeerError when it does not belong there, or completes a
        corrupt chunk."""
        if self.whole:
            raise PeerError(f"{self._held}: more bytes than announced")
        chunk = self._missing[self._next]
        start, nbytes = self._places[chunk]
        if not 0 < len(block) <= nbytes - self._at:
            raise PeerError(f"{self._held}: a block of {len(block)} bytes in chunk {chunk} of {nbytes}")
        self._memory[start + self._at : start + self._at + len(block)] = block
        self._at += len(block)
        self.received += len(block)
        if self._at == nbytes:
            verify(self._memory, self._held, chunk, self._places[chunk])
            if self._came is not None:
                self._came(self._memory[start : start + nbytes])
            self._next, self._at = self._next + 1, 0


def verify(memory: memoryview, held: SnapshotInfo, chunk: int, place: Place) -> None:
    """Raise PeerError unless a chunk of this slot has the digest that was declared for it."""
    start, nbytes = place
    if digest(memory[start : start + nbytes]) != held.digest(chunk):
        raise PeerError(f"{held}: chunk {chunk} ({nbytes} bytes at {start}) is corrupted")


def header_of(memory: memoryview, held: SnapshotInfo) -> bytes:
    """The header behind the data of a filled slot."""
    start = align(held.data_bytes, HEADER_ALIGN_BYTES)
    return bytes(memory[start : start + held.header_bytes])


class SharedArena:
    """An arena that is closed when its last user releases it. Thread-safe."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._users = 1
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one user less; the last one closes the arena."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.arena.close()


class Receiving:
    """One incoming copy: let `filling` take its blocks, then `Copies.commit` it; `close` it in any case."""

    def __init__(self, held: SnapshotInfo, kept: SharedArena, writer: SlotWriter, *, fresh: bool) -> None:
        self.held, self.kept, self.writer = held, kept, writer
        self.fresh = fresh  # its arena was made for it, and is removed when the copy fails
        self.expect([])
        self._open = True

    def expect(self, missing: list[int]) -> None:
        """Set which chunks must still arrive."""
        self.missing = missing
        self.filling = Filling(self.writer.memory, self.held, missing)

    def close(self, *, whole: bool = False) -> None:
        """Give the slot back empty unless it is whole. May be called twice."""
        if not self._open:
            return
        self._open = False
        if not whole:
            self.writer.abandon()
            if self.fresh:
                removal.file(self.kept.arena.path)
        self.kept.release()


def fill_in(
    memory: memoryview,
    held: SnapshotInfo,
    old: SnapshotInfo | None,
    others: list[tuple[SlotView, SnapshotInfo]],
) -> list[int]:
    """Fill in every chunk that one of our slots holds, verified; return the numbers of the others.

    `old`: what the slot that is being overwritten held; a chunk that is the same, at the same place,
    stays."""
    known: dict[bytes, memoryview] = {}
    for slot, have in others:
        area = slot.arena.area(slot.index)
        for number, (start, nbytes) in enumerate(places(have.data_bytes, have.header_bytes)):
            known[have.digest(number)] = area[start : start + nbytes]
    kept = dict(enumerate(places(old.data_bytes, old.header_bytes))) if old is not None else {}
    missing = []
    for number, place in enumerate(places(held.data_bytes, held.header_bytes)):
        wanted = held.digest(number)
        start, nbytes = place
        target = memory[start : start + nbytes]
        if old is not None and kept.get(number) == place and old.digest(number) == wanted == digest(target):
            continue
        source = known.get(wanted)
        if source is None or len(source) != nbytes:
            missing.append(number)
            continue
        target[:] = source
        try:
            verify(memory, held, number, place)
        except PeerError:  # our own copy has rotted: the owner must send this chunk
            missing.append(number)
    return missing
