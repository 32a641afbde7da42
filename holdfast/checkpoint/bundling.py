"""Write chunks in bundles: files of several chunks, for a storage where each request costs time and money.

Workers hand over their chunks. The one whose chunk does not fit any more writes the bundle, while the others
go on hashing. A bundle is named by its bytes, and never changed. Only when it is written does a chunk have a
place; `settled` tells it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.format import chunks, names
from holdfast.checkpoint.format.chunks import Chunk
from holdfast.checkpoint.format.names import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint.format.chunks import BaseIndex, Ref
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.checkpoint.storage.store import Store

WRITERS = 2
"""So many bundles are uploaded at a time. Each is in memory twice, the second time in aiohttp. The chunks of
one more wait for others."""


class _Waiting(NamedTuple):
    offset: int
    chunk: Chunk
    stored: Bytes


class Bundler:
    """Gathers the chunks of one writer's save into bundles.

    `put(name, whole, content)` stores a bundle, `whole` being all of it as one chunk, unless it is there."""

    def __init__(
        self, store: Store, job: str, index: BaseIndex, put: Callable[[str, Chunk, Bytes], object]
    ) -> None:
        self._store, self._job, self._index, self._put = store, job, index, put
        self._waiting: list[_Waiting] = []
        self._nbytes = 0
        self._settled: dict[str, Chunk] = {}
        self._gathering = (
            threading.Lock()
        )  # who writes a bundle never takes it: who holds it may wait for them
        self._writers = threading.BoundedSemaphore(WRITERS)

    def add(self, offset: int, chunk: Chunk, stored: Bytes) -> None:
        """Take a chunk. Returns at once, or when the bundle that it fills is written. `stored` has to stay as
        it is until its own bundle is written.

        Chunks lie in a bundle as their `offset` says: who needs a part of the state reads neighbours."""
        with self._gathering:
            full = self._nbytes + len(stored) > self._store.bundle_bytes and bool(self._waiting)
            if full:
                self._writers.acquire()  # in the lock: meanwhile nobody gathers more
            taken = self._take() if full else []
            self._waiting.append(_Waiting(offset, chunk, stored))
            self._nbytes += len(stored)
        if full:
            self._write(taken)

    def finish(self) -> None:
        """Write what waits."""
        with self._gathering:
            taken = self._take()
        if taken:
            self._writers.acquire()
            self._write(taken)

    def settled(self, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        """The same bytes, with the places of the chunks that were gathered."""
        return tuple(ref._replace(chunk=self._settled.get(ref.chunk.blake3, ref.chunk)) for ref in refs)

    def _take(self) -> list[_Waiting]:
        taken, self._waiting, self._nbytes = self._waiting, [], 0
        return taken

    def _write(self, taken: list[_Waiting]) -> None:
        try:
            taken.sort(key=lambda each: (each.offset, each.chunk.blake3))
            content = b"".join(each.stored for each in taken)
            gathered = [each.chunk for each in taken]
            taken.clear()  # encoded chunks need not be in memory twice
            placed = _placed(gathered, content)
            digest = chunks.name(content)
            whole = Chunk(digest, len(content), len(content))
            self._put(names.bundle(self._job, self._index.base, digest), whole, content)
            self._store.flush()
        finally:
            self._writers.release()
        found = {chunk.blake3: chunk._replace(bundle=digest) for chunk in placed}
        self._settled.update(found)
        self._index.durable.update(found)  # if this save fails, the next one need not write them again


def _placed(gathered: list[Chunk], content: bytes) -> list[Chunk]:
    """The chunks with their places in the content.

    Their bytes have waited for it, in memory of others: raises CheckpointError if one is not what it was when
    it was named. Only a reader would notice later."""
    placed, start, view = [], 0, memoryview(content)
    for chunk in gathered:
        end = start + chunk.stored
        if chunk.codec == PLAIN and chunks.name(view[start:end]) != chunk.blake3:
            raise CheckpointError(f"chunk {chunk.blake3} has changed in memory while it waited to be written")
        placed.append(chunk._replace(start=start))
        start = end
    return placed
