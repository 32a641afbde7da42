"""One pass over a writer's chunks: what changed is hashed, named, encoded and put; the rest is pointed at."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.checkpoint import chunks, codec, names
from agent.checkpoint.chunks import BaseIndex, Chunk, Claims, Place, Ref, Seen
from agent.checkpoint.errors import CheckpointCorrupt, CheckpointError
from agent.checkpoint.names import PLAIN
from agent.checkpoint.reading import read_chunk

if TYPE_CHECKING:
    from agent.checkpoint.cutting import Cut
    from agent.checkpoint.layout import Tensor
    from agent.checkpoint.names import Bytes
    from agent.checkpoint.store import Store

WORKERS = 4
"""Chunks in flight: hashing one overlaps with writing others. Each holds two chunks' bytes at most: what it
packs, encodes, or hands to a storage that wants a copy."""
_NICE = 10


@dataclass(frozen=True, slots=True)
class Target:
    """Where the chunks belong."""

    job: str
    base: str
    checkpoint: str
    shard: str
    codec: str  # none, zstd or auto


class Writing:
    """Makes the chunks of some cuts of a slot durable, and knows where each cut's bytes are then."""

    def __init__(
        self, store: Store, target: Target, index: BaseIndex, tensors: tuple[Tensor, ...], memory: memoryview
    ) -> None:
        self.written = 0
        self.stop = threading.Event()
        self._store, self._target, self._index = store, target, index
        self._tensors, self._memory = tensors, memory
        self._seen: dict[Place, Seen] = {}
        self._claims = Claims()
        self._lock = threading.Lock()

    def run(self, cuts: tuple[Cut, ...]) -> list[tuple[Ref, ...]]:
        """All of the cuts put; where the bytes of each are. The first failure stops the rest."""
        with ThreadPoolExecutor(WORKERS, "persist", initializer=be_nice) as pool:
            try:
                return list(pool.map(self._one, cuts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def remember(self) -> None:
        """All of it is durable: the next save of this base need not write it again."""
        for seen in self._seen.values():
            self._index.durable.update((ref.chunk.blake3, ref.chunk) for ref in seen.refs)
        self._index.places.update(self._seen)

    def _one(self, cut: Cut) -> tuple[Ref, ...]:
        if self.stop.is_set():
            raise CheckpointError(f"checkpoint {self._target.checkpoint}: told to stop while it was saved")
        content = cut.content(self._memory)
        spans = tuple((self._tensors[span.tensor].name, span.start, span.nbytes) for span in cut.spans)
        place, mark = (self._target.shard, spans), chunks.fingerprint(content)
        before = self._index.places.get(place)
        if before is not None and before.mark == mark and self._durable(before.refs):
            refs = before.refs
        else:
            refs = (Ref(self._chunk(cut, content), 0, cut.nbytes),)
        with self._lock:
            self._seen[place] = Seen(mark, refs)
        return refs

    def _durable(self, refs: tuple[Ref, ...]) -> bool:
        return all(self._index.durable.get(ref.chunk.blake3) == ref.chunk for ref in refs)

    def _chunk(self, cut: Cut, content: Bytes) -> Chunk:
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
            chunk = self._write(digest, content, self._codec(cut))
        finally:
            self._claims.give(digest, chunk)
        return chunk

    def _codec(self, cut: Cut) -> str:
        if self._target.codec != codec.ZSTD:
            return PLAIN
        largest = max(cut.spans, key=lambda span: span.nbytes)
        return codec.for_dtype(self._tensors[largest.tensor].dtype)

    def _write(self, digest: str, content: Bytes, wanted: str) -> Chunk:
        stored = codec.encode(content, wanted)
        if stored is None:
            stored, wanted = content, PLAIN
        chunk = Chunk(digest, len(content), len(stored), wanted)
        name = names.chunk(self._target.job, self._target.base, digest, wanted)
        if not self._store.stage(name, stored):
            if self._holds(name, chunk):
                return chunk
            self._store.replace(name, stored)
        with self._lock:
            self.written += len(stored)
        return chunk

    def _holds(self, name: str, chunk: Chunk) -> bool:
        try:
            read_chunk(self._store, name, chunk, self._target.checkpoint)
            self._store.settle(name)
        except (CheckpointCorrupt, FileNotFoundError):  # rotten, or deleted since it was found
            return False
        return True


def be_nice() -> None:
    """This thread gives way to the training."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
