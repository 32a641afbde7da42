"""Saving: a slot's chunks become durable, then its manifest's content, and after the commit it is published.

A save leaves `pending/<id>.<digest>.json` behind: the manifest's whole content, durable, named by the digest
that the commit record in etcd holds. So whoever holds the record can publish, also another process after a
crash, and a checkpoint is committed exactly when etcd has its record. Killed at any moment, a save leaves
chunks that nothing names, or a pending manifest that is complete; neither is a checkpoint."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.checkpoint import chunks, layout, names
from agent.checkpoint.chunks import BaseIndex, Claims, Cut
from agent.checkpoint.errors import CheckpointError, StorageError
from agent.checkpoint.manifest import CODECS, MANIFEST_BYTES_MAX, Chunk, Manifest, Piece, Shard, seal, unseal
from controlplane import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.checkpoint.arena import SlotView
    from agent.checkpoint.layout import Tensor
    from agent.checkpoint.names import Bytes
    from agent.checkpoint.store import Store

WORKERS = 4
"""Chunks in flight: hashing one overlaps with writing others. Each holds PACK_BYTES of copies at most
(CHUNK_BYTES on storage other than folders)."""
_NICE = 10


@dataclass(frozen=True, slots=True)
class PersistResult:
    """A durable save. `digest` belongs into the commit record; sizes in bytes."""

    manifest: bytes
    digest: str
    bytes_total: int  # of all tensors
    bytes_written: int  # chunks and manifest that were new


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be saved, and as what."""

    job: str
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    rank: int


def persist(
    slot: SlotView,
    *,
    store: Store,
    job: str,
    checkpoint: str,
    step: int,
    generation: int,
    kind: str,
    base: str,
    versions: Sequence[tuple[int, int]],
    codec: str = "none",
    rank: int = 0,
    stop: threading.Event | None = None,
) -> PersistResult:
    """Make a pinned slot durable as `checkpoint`. Blocks; call it in a worker thread. Setting `stop` ends
    it at the next chunk, with a CheckpointError; saved again later, it goes on from there.

    Raises StorageError when the storage fails, CheckpointError when the slot is not what it should be."""
    order = _Order(job, checkpoint, step, generation, kind, base, tuple(versions), rank)
    _check(slot, order, codec)
    tensors, state = _content(slot)
    save = _Save(store, order, tensors, slot.memory)
    save.stop = stop or save.stop
    found = save.run()
    if not slot.current():
        raise CheckpointError(f"checkpoint {checkpoint}: its snapshot was overwritten while it was read")
    manifest = _manifest(order, slot.data_bytes, tensors, found, state)
    content, digest = seal(manifest)
    store.flush()
    if store.put(names.pending(job, checkpoint, digest), content):
        save.written += len(content)
    store.flush()
    save.remember()
    return PersistResult(content, digest, manifest.bytes_total, save.written)


def publish(store: Store, job: str, checkpoint: str, digest: str) -> None:
    """Make a committed checkpoint's manifest visible under its id, never overwriting one. Idempotent.

    Raises StorageError when another manifest has that id or the content is gone."""
    waiting, final = names.pending(job, checkpoint, digest), names.manifest(job, checkpoint)
    try:
        content = store.read(waiting, MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        _already_published(store, job, checkpoint, digest)
        return
    unseal(content, job, checkpoint, digest)
    if not store.put(final, content):
        _already_published(store, job, checkpoint, digest)
    store.flush()
    store.delete(waiting)


def _already_published(store: Store, job: str, checkpoint: str, digest: str) -> None:
    final = names.manifest(job, checkpoint)
    try:
        content = store.read(final, MANIFEST_BYTES_MAX)
    except FileNotFoundError as error:
        raise StorageError(
            f"storage {store.url}: checkpoint {checkpoint} of job {job} cannot be published: neither its "
            f"manifest nor its pending content with digest {digest} is there"
        ) from error
    unseal(content, job, checkpoint, digest)


def _check(slot: SlotView, order: _Order, codec: str) -> None:
    checkpoint = order.checkpoint
    if (slot.step, slot.generation) != (order.step, order.generation):
        raise CheckpointError(
            f"checkpoint {checkpoint}: the slot holds step {slot.step} of generation {slot.generation}"
        )
    if codec not in CODECS:
        raise CheckpointError(f"codec {codec!r} is unknown; known: {', '.join(CODECS)}")
    if names.checkpoint_id(order.step, order.generation) != checkpoint:
        raise CheckpointError(f"checkpoint {checkpoint} is not the id of step {order.step}")
    opens_base = checkpoint == order.base
    if {"full": opens_base, "incremental": not opens_base}.get(order.kind) is not True:
        raise CheckpointError(
            f"checkpoint {checkpoint}: kind {order.kind!r} does not go with base {order.base}"
        )


def _content(slot: SlotView) -> tuple[tuple[Tensor, ...], object]:
    try:
        return layout.decode(slot.header, slot.data_bytes)
    except layout.LayoutError as error:
        raise CheckpointError(f"snapshot {slot.step} cannot be saved: {error}") from error


def _index(store: Store, job: str, base: str) -> BaseIndex:
    index = store.indexes.get(job)
    if index is None or index.base != base:
        index = store.indexes[job] = BaseIndex(base)
    return index


class _Save:
    """One pass over a slot's chunks."""

    def __init__(self, store: Store, order: _Order, tensors: tuple[Tensor, ...], memory: memoryview) -> None:
        self.written = 0
        self.stop = threading.Event()
        self._store, self._order, self._tensors, self._memory = store, order, tensors, memory
        self._index = _index(store, order.job, order.base)
        self._places: dict[chunks.Place, tuple[bytes, str]] = {}
        self._claims = Claims()
        self._lock = threading.Lock()

    def run(self) -> list[tuple[Cut, str]]:
        """Every chunk with its name, all of them put. The first failure stops the rest."""
        cuts = chunks.cut(self._tensors)
        with ThreadPoolExecutor(WORKERS, "persist", initializer=_be_nice) as pool:
            try:
                return list(zip(cuts, pool.map(self._one, cuts), strict=True))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def remember(self) -> None:
        """All of it is durable: the next save of this base need not write it again."""
        self._index.durable.update(digest for _, digest in self._places.values())
        self._index.places.update(self._places)

    def _one(self, cut: Cut) -> str:
        if self.stop.is_set():
            raise CheckpointError(f"checkpoint {self._order.checkpoint}: told to stop while it was saved")
        content = cut.content(self._memory)
        place = tuple((self._tensors[span.tensor].name, span.start, span.nbytes) for span in cut.spans)
        mark = chunks.fingerprint(content)
        before = self._index.places.get(place)
        digest = before[1] if before is not None and before[0] == mark else chunks.name(content)
        if self._claims.take(digest):
            self._keep(digest, content)
        with self._lock:
            self._places[place] = (mark, digest)
        return digest

    def _keep(self, digest: str, content: Bytes) -> None:
        name = names.chunk(self._order.job, self._order.base, digest)
        if digest in self._index.durable and self._store.size(name) == len(content):
            return
        if not self._store.put(name, content):
            if self._holds(name, digest, len(content)):
                return
            self._store.replace(name, content)
        with self._lock:
            self.written += len(content)

    def _holds(self, name: str, digest: str, nbytes: int) -> bool:
        try:
            return chunks.name(self._store.read(name, nbytes + 1)) == digest
        except FileNotFoundError:  # deleted since the put that found it
            return False


def _manifest(
    order: _Order, data_bytes: int, tensors: tuple[Tensor, ...], found: list[tuple[Cut, str]], state: object
) -> Manifest:
    table, pieces = _tables(found, len(tensors))
    shard = Shard(order.rank, data_bytes, tensors, pieces, state)
    return Manifest(
        job=order.job,
        id=order.checkpoint,
        step=order.step,
        generation=order.generation,
        kind=order.kind,
        base=order.base,
        versions=order.versions,
        holdfast=__version__,
        chunks=table,
        shards=(shard,),
    )


def _tables(
    found: list[tuple[Cut, str]], tensors: int
) -> tuple[tuple[Chunk, ...], tuple[tuple[Piece, ...], ...]]:
    numbers: dict[str, int] = {}
    table: list[Chunk] = []
    pieces: list[list[Piece]] = [[] for _ in range(tensors)]
    for cut, digest in found:
        if digest not in numbers:
            numbers[digest] = len(table)
            table.append(Chunk(digest, cut.nbytes, cut.nbytes))
        at = 0
        for span in cut.spans:
            pieces[span.tensor].append(Piece(numbers[digest], at, span.nbytes))
            at += span.nbytes
    return tuple(table), tuple(tuple(parts) for parts in pieces)


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
