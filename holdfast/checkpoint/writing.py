"""Write one writer's chunks in one pass: hash, encode and store what has changed, refer to the rest.

A place that holds what it held at the last save needs nothing: its fingerprint shows that, or the marks of
its rows. If only some rows of it have changed, those alone are written (rows.py). Other chunks are named by
their content, and written only if the base does not have them: each in a file, or several in a bundle."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint import priority
from holdfast.checkpoint.bundling import Bundler
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.format import chunks, codec, rows
from holdfast.checkpoint.format.chunks import BaseIndex, Chunk, ChunkClaims, Place, Ref, Seen
from holdfast.checkpoint.format.names import PLAIN
from holdfast.checkpoint.reading import read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint.format.cutting import Cut, Span
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.layout import Tensor

WORKERS = 6
"""Chunks in flight, so that hashing one overlaps with writing others.

Each holds at most two chunks' bytes: what it packs, encodes, or copies for a storage that needs a copy."""
_THINKERS = 4
"""So many of them hash or encode at a time, but no more than there are cores. The others wait for the
storage, which is thus always busy."""


@dataclass(frozen=True, slots=True)
class ChunkTarget:
    """Where the chunks belong."""

    job: str
    base: str
    checkpoint: str
    shard: str
    codec: str  # none, zstd or auto


class Writing:
    """Makes the chunks of some cuts of a slot durable, and knows where each cut's bytes are then.

    `written`: bytes stored so far. Set `stop` to end it at the next chunk. `passed` is told, in threads, each
    run of the memory, (start, bytes), that was read; what goes into a bundle and changed rows are read once
    more."""

    def __init__(
        self,
        store: Store,
        target: ChunkTarget,
        index: BaseIndex,
        tensors: tuple[Tensor, ...],
        memory: memoryview,
    ) -> None:
        self.written = 0
        self.stop = threading.Event()
        self.passed: Callable[[int, int], object] = lambda start, nbytes: None
        self._store, self._target, self._index = store, target, index
        self._tensors, self._memory = tensors, memory
        self._seen: dict[Place, Seen] = {}
        self._claims = ChunkClaims()
        self._lock = threading.Lock()
        self._bundler = Bundler(store, target.job, index, self._put) if store.bundle_bytes else None
        self._thinking = threading.BoundedSemaphore(min(_THINKERS, len(os.sched_getaffinity(0))))

    def run(self, cuts: tuple[Cut, ...], *, nice: bool = True) -> list[tuple[Ref, ...]]:
        """Store all of the cuts. Returns where the bytes of each are. The first failure stops the rest.

        `nice`: give way to training, unless training waits for this save."""
        with ThreadPoolExecutor(WORKERS, "persist", initializer=priority.give_way if nice else None) as pool:
            try:
                found = list(pool.map(self._passing, cuts))
                list(pool.map(self._pack, rows.packs(one for one in found if isinstance(one, rows.Delta))))
                return self._settled([one.refs for one in found])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _settled(self, found: list[tuple[Ref, ...]]) -> list[tuple[Ref, ...]]:
        """Write the last bundle. Returns where the bytes of each cut are, bundles and all."""
        if self._bundler is None:
            return found
        self._bundler.finish()
        for place, seen in self._seen.items():
            self._seen[place] = seen._replace(refs=self._bundler.settled(seen.refs))
        return [self._bundler.settled(refs) for refs in found]

    def remember(self) -> None:
        """Note that all of it is durable, so that the next save of this base need not write it again."""
        named = {ref.chunk for seen in self._seen.values() for ref in seen.refs}
        self._index.durable.update((chunk.blake3, chunk) for chunk in named)
        self._index.places.update(self._seen)
        self._index.has_named(self._target.checkpoint, named)

    def _passing(self, cut: Cut) -> Seen | rows.Delta:
        done = self._one(cut)
        for span in cut.spans:
            self.passed(span.offset, span.nbytes)
        return done

    def _one(self, cut: Cut) -> Seen | rows.Delta:
        """Store one cut. A delta is returned if only some of its rows have to be written."""
        self._check_stop()
        content = cut.content(self._memory)
        spans = tuple((self._tensors[span.tensor].name, span.start, span.nbytes) for span in cut.spans)
        place = (self._target.shard, spans)
        before = self._before(place)
        if before is not None and before.mark and before.mark == self._mark(content):
            return self._see(place, before)
        marks = self._rows(cut, place, content)
        if before is not None and marks and marks == before.rows:
            return self._see(place, before._replace(mark=self._mark(content)))
        runs = self._runs(cut, place, before, marks)
        if before is not None and runs is not None:
            span = cut.spans[0]
            return rows.Delta(place, marks, cut.nbytes, span.offset, span.tensor, runs, before.refs)
        chunk = self._chunk(content, self._tensors[max(cut.spans, key=_nbytes).tensor], cut.spans[0].offset)
        mark = b"" if marks else self._mark(content)
        return self._see(place, Seen(mark, (Ref(chunk, 0, cut.nbytes),), marks))

    def _before(self, place: Place) -> Seen | None:
        """What the place held at the last save, if that is still durable."""
        before = self._index.places.get(place)
        return before if before is not None and self._durable(before.refs) else None

    def _mark(self, content: Bytes) -> bytes:
        with self._thinking:
            return chunks.fingerprint(content)

    def _rows(self, cut: Cut, place: Place, content: Bytes) -> bytes:
        span = cut.spans[0]
        size = rows.grain(self._tensors[span.tensor])
        if len(cut.spans) > 1 or not size or place in self._index.dense:
            return b""
        with self._thinking:
            return rows.marks(content, span.start, size)

    def _runs(self, cut: Cut, place: Place, before: Seen | None, marks: bytes) -> list[rows.Run] | None:
        """The runs of bytes to be written of a place with known rows; None: all of it."""
        if before is None or not before.rows or not marks:
            return None
        span = cut.spans[0]
        size = rows.grain(self._tensors[span.tensor])
        runs = rows.changed(before.rows, marks, cut.nbytes, span.start, size)
        if runs is None:
            self._index.dense.add(place)
        return runs if runs is not None and rows.pays(before.refs, runs) else None

    def _pack(self, deltas: list[rows.Delta]) -> None:
        self._check_stop()
        content = b"".join(part for delta in deltas for part in delta.content(self._memory))
        chunk, at = self._chunk(content, self._tensors[deltas[0].tensor], deltas[0].offset), 0
        for delta in deltas:
            delta.place_in(Ref(chunk, at, delta.changed))
            at += delta.changed
            self._see(delta.place, Seen(b"", delta.refs, delta.rows))

    def _see(self, place: Place, seen: Seen) -> Seen:
        with self._lock:
            self._seen[place] = seen
        return seen

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise CheckpointError(
                f"checkpoint {self._target.checkpoint}: stopped on request while it was saved"
            )

    def _durable(self, refs: tuple[Ref, ...]) -> bool:
        return all(self._index.durable.get(ref.chunk.blake3) == ref.chunk for ref in refs)

    def _chunk(self, content: Bytes, tensor: Tensor, offset: int) -> Chunk:
        """The chunk with this content, which is durable or staged when this returns, or waits for its bundle.

        `offset`: where the content begins in the slot."""
        with self._thinking:
            digest = chunks.name(content)
        known = self._index.durable.get(digest)
        if known is not None:
            return known
        if not self._claims.take(digest):
            given = self._claims.wait(digest)
            if given is None:
                raise CheckpointError(f"checkpoint {self._target.checkpoint}: chunk {digest} was not written")
            return given
        chunk: Chunk | None = None
        try:
            chunk = self._write(digest, content, codec.for_dtype(tensor.dtype), offset)
        finally:
            self._claims.give(digest, chunk)
        return chunk

    def _write(self, digest: str, content: Bytes, wanted: str, offset: int) -> Chunk:
        stored, used = self._encoded(content, wanted)
        chunk = Chunk(digest, len(content), len(stored), used)
        if self._bundler is not None:
            self._bundler.add(offset, chunk, stored)
        else:
            self._put(chunks.file(self._target.job, self._target.base, chunk), chunk, stored)
        return chunk

    def _put(self, name: str, chunk: Chunk, stored: Bytes) -> None:
        """Store a chunk under this name, unless it is there; it is durable at the next flush."""
        begun_s = time.perf_counter()
        if not self._store.stage(name, stored):
            if self._holds(name, chunk):
                return
            self._store.replace(name, stored)
        self._index.meter.uploaded(len(stored), time.perf_counter() - begun_s)
        with self._lock:
            self.written += len(stored)

    def _encoded(self, content: Bytes, wanted: str) -> tuple[Bytes, str]:
        meter, setting = self._index.meter, self._target.codec
        if setting == PLAIN or (setting == codec.AUTO and not meter.choose()):
            return content, PLAIN
        with self._thinking:
            begun_s = time.perf_counter()
            stored = codec.encode(content, wanted)
            spent_s = time.perf_counter() - begun_s
        size = len(content) if stored is None else len(stored)
        meter.encoded(len(content), size, spent_s)
        return (content, PLAIN) if stored is None else (stored, wanted)

    def _holds(self, name: str, chunk: Chunk) -> bool:
        try:
            read_chunk(self._store, name, chunk, self._target.checkpoint)
            self._store.settle(name)
        except (CheckpointCorrupt, FileNotFoundError):  # rotten, or deleted meanwhile
            return False
        return True


def _nbytes(span: Span) -> int:
    return span.nbytes
