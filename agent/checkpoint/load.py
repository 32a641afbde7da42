"""Loading: every chunk is read and verified, every time, and goes straight into a slot of an arena."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.checkpoint import chunks, names
from agent.checkpoint.arena import SkipReason
from agent.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused, NameRefused
from agent.checkpoint.manifest import MANIFEST_BYTES_MAX, Manifest, Shard, unseal

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.checkpoint.arena import Arena
    from agent.checkpoint.manifest import Chunk
    from agent.checkpoint.store import Store

WORKERS = 4
"""Chunks in flight. Each holds one chunk's bytes at most, none when it goes straight into the slot."""
_ANY_STEP = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest that is visible on storage; nothing of it has been read yet."""

    id: str
    step: int
    generation: int


@dataclass(frozen=True, slots=True)
class _Target:
    """Where bytes of a chunk go: chunk[at : at + nbytes] to slot[offset : offset + nbytes]."""

    at: int
    offset: int
    nbytes: int


def listing(store: Store, job: str) -> list[Found]:
    """The published checkpoints of a job, newest (highest step, then generation) first. Names that are no
    manifest's are passed over."""
    found = []
    for entry in store.list(names.manifests(job)):
        try:
            step, generation = names.split_id(entry.removesuffix(".json"))
        except NameRefused:
            continue
        found.append(Found(entry.removesuffix(".json"), step, generation))
    return sorted(found, key=lambda entry: (entry.step, entry.generation), reverse=True)


def read_manifest(store: Store, job: str, checkpoint: str, digest: str = "") -> Manifest:
    """The verified manifest of a checkpoint. With `digest` (from the commit record) it is also found when
    it is committed but not published yet. Raises CheckpointCorrupt, CheckpointRefused, StorageError."""
    places = [names.manifest(job, checkpoint)]
    if digest:
        places.append(names.pending(job, checkpoint, digest))
    for place in places:
        try:
            content = store.read(place, MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            continue
        return unseal(content, job, checkpoint, digest)
    raise CheckpointCorrupt(checkpoint, "manifest", f"is not at {store.url}")


def load(
    store: Store,
    arena: Arena,
    *,
    job: str,
    checkpoint: str,
    digest: str = "",
    rank: int = 0,
    stop: threading.Event | None = None,
) -> int:
    """Bring a checkpoint into a slot of `arena` and make it READY; returns its step. Blocks; setting `stop`
    ends it at the next chunk, with a CheckpointError.

    The slot keeps the checkpoint's step and generation: find it with `arena.find(step)`. An empty slot is
    taken first, then the older one. On failure the slot is empty and the error says what is wrong."""
    manifest = read_manifest(store, job, checkpoint, digest)
    shard = _shard(manifest, rank)
    writer = arena.begin(manifest.step, manifest.generation, released_step=_ANY_STEP)
    if isinstance(writer, SkipReason):
        raise CheckpointError(f"checkpoint {checkpoint} cannot be loaded now: {writer}")
    try:
        writer.layout(shard.header, shard.data_bytes)
        _fetch(store, manifest, shard, writer.memory, stop or threading.Event())
    except BaseException:
        writer.abandon()
        raise
    writer.ready()
    return manifest.step


def verify(store: Store, job: str, checkpoint: str, digest: str = "") -> Manifest:
    """Read the manifest and every chunk and keep none. Raises as `load` does."""
    manifest = read_manifest(store, job, checkpoint, digest)
    _each(manifest, lambda _, chunk: _read(store, manifest, chunk))
    return manifest


def _shard(manifest: Manifest, rank: int) -> Shard:
    for shard in manifest.shards:
        if shard.rank == rank:
            return shard
    raise CheckpointRefused(f"checkpoint {manifest.id}: has no shard of rank {rank}")


def _fetch(store: Store, manifest: Manifest, shard: Shard, memory: memoryview, stop: threading.Event) -> None:
    targets = _targets(manifest, shard)

    def one(number: int, chunk: Chunk) -> None:
        if stop.is_set():
            raise CheckpointError(f"checkpoint {manifest.id}: told to stop while it was loaded")
        wanted = targets[number]
        if not wanted:
            return
        first, rest = wanted[0], wanted[1:]
        if first.nbytes == chunk.nbytes:
            content = memory[first.offset : first.offset + first.nbytes]
            _read_into(store, manifest, chunk, content)
        else:
            content, rest = memoryview(_read(store, manifest, chunk)), wanted
        for target in rest:
            memory[target.offset : target.offset + target.nbytes] = content[
                target.at : target.at + target.nbytes
            ]

    _each(manifest, one)


def _targets(manifest: Manifest, shard: Shard) -> list[list[_Target]]:
    targets: list[list[_Target]] = [[] for _ in manifest.chunks]
    for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
        offset = tensor.offset
        for piece in pieces:
            targets[piece.chunk].append(_Target(piece.at, offset, piece.nbytes))
            offset += piece.nbytes
    return targets


def _each(manifest: Manifest, work: Callable[[int, Chunk], object]) -> None:
    with ThreadPoolExecutor(WORKERS, "load") as pool:
        try:
            for _ in pool.map(work, range(len(manifest.chunks)), manifest.chunks):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _read(store: Store, manifest: Manifest, chunk: Chunk) -> bytes:
    try:
        content = store.read(names.chunk(manifest.job, manifest.base, chunk.blake3), chunk.stored + 1)
    except FileNotFoundError as error:
        raise _corrupt(manifest, chunk, "is missing") from error
    _verify(manifest, chunk, content, len(content))
    return content


def _read_into(store: Store, manifest: Manifest, chunk: Chunk, target: memoryview) -> None:
    try:
        size = store.read_into(names.chunk(manifest.job, manifest.base, chunk.blake3), target)
    except FileNotFoundError as error:
        raise _corrupt(manifest, chunk, "is missing") from error
    _verify(manifest, chunk, target, size)


def _verify(manifest: Manifest, chunk: Chunk, content: bytes | memoryview, size: int) -> None:
    if size != chunk.stored:
        raise _corrupt(
            manifest, chunk, f"has {'more' if size > chunk.stored else 'fewer'} than {chunk.stored} bytes"
        )
    found = chunks.name(content)
    if found != chunk.blake3:
        raise _corrupt(manifest, chunk, f"its bytes have digest {found}")


def _corrupt(manifest: Manifest, chunk: Chunk, problem: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(manifest.id, f"chunk {chunk.blake3}", problem)
