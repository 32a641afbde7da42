"""Load a checkpoint: read and verify every chunk, every time, straight into a slot of an arena."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.checkpoint import runs, suspect
from holdfast.checkpoint.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointRefused,
    NameRefused,
    NotAFile,
    StorageError,
)
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest
from holdfast.checkpoint.reading import read_chunk, read_chunk_into, verified
from holdfast.ipc import layout
from holdfast.ipc.shm import touch
from holdfast.ipc.skips import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard
    from holdfast.checkpoint.runs import ChunkRun
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import Arena

T = TypeVar("T")
WORKERS = 12
"""Chunks in flight. Each holds at most two chunks' bytes; none if it goes straight into the slot."""
_FORESEEN = 256
"""So many files are looked up before the first of them is read.

On a cold disk a lookup takes small reads. Each would wait behind the bulk reads, and half of the time would
be spent on them."""
_ANY_STEP = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest that is visible on storage; its content has not been read yet."""

    id: str
    step: int
    generation: int
    suspect: str = ""  # why its state is not trusted; "": no mark says so


class _Target(NamedTuple):
    """Where bytes of a chunk go: chunk[at : at + nbytes] to slot[offset : offset + nbytes]."""

    at: int
    offset: int
    nbytes: int


def listing(store: Store, job: str) -> list[Found]:
    """The published checkpoints of a job, newest (highest step, then generation) first.

    Names that are not those of manifests are passed over."""
    found, suspects = [], suspect.reasons(store, job)
    for entry in store.list(names.manifests(job)):
        try:
            step, generation = names.split_id(entry.removesuffix(".json"))
        except NameRefused:
            continue
        checkpoint = entry.removesuffix(".json")
        found.append(Found(checkpoint, step, generation, suspects.get(checkpoint, "")))
    return sorted(found, key=lambda entry: (entry.step, entry.generation), reverse=True)


def read_manifest(store: Store, job: str, checkpoint: str, digest: str = "") -> Manifest:
    """The verified manifest of a checkpoint.

    With `digest` (from the commit record) it is also found if it is committed but not published yet. Raises
    CheckpointCorrupt, CheckpointRefused, StorageError."""
    return _either(store, lambda place: _manifest_of(place, job, checkpoint, digest))


def _manifest_of(store: Store, job: str, checkpoint: str, digest: str) -> Manifest:
    places = [names.manifest(job, checkpoint)]
    if digest:
        places.append(names.pending(job, checkpoint, digest))
    for place in places:
        try:
            content = store.read(place, MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            continue
        except NotAFile as error:
            raise CheckpointCorrupt(checkpoint, "manifest", str(error)) from error
        return decode_manifest(content, job, checkpoint, digest)
    raise CheckpointCorrupt(checkpoint, "manifest", f"is not at {store.url}")


def _either(store: Store, read: Callable[[Store], T]) -> T:
    """What this storage has, or else its mirror; the first one's error if neither has it."""
    try:
        return read(store)
    except (CheckpointCorrupt, StorageError):
        if store.second is None:
            raise
        with contextlib.suppress(CheckpointCorrupt, StorageError):
            return read(store.second)
        raise


def load(
    store: Store,
    arena: Arena,
    *,
    job: str,
    checkpoint: str,
    digest: str = "",
    shard: str = layout.WHOLE_STATE,
    share: int = 0,
    shares: int = 1,
    stop: threading.Event | None = None,
) -> int:
    """Bring a shard of a checkpoint into a slot of `arena` and make the slot READY. Returns the step.

    With `shares` > 1 only the bytes of `layout.share_range` are brought, and the slot is PARTIAL. The slot
    gets the checkpoint's step and generation: find it with `arena.find(step, shard=...)`. An empty slot is
    taken first, then the older one.

    Blocks. Setting `stop` ends it at the next chunk, with a CheckpointError. On failure the slot is empty,
    and the error says what is wrong."""
    manifest = read_manifest(store, job, checkpoint, digest)
    wanted = shard_of(manifest, shard)
    area = layout.share_range(wanted.data_bytes, share, shares)
    writer = arena.begin(manifest.step, manifest.generation, released_step=_ANY_STEP, held=True)
    if isinstance(writer, Skip):
        raise CheckpointError(f"checkpoint {checkpoint} cannot be loaded now: {writer}")
    passed = partial(arena.unmap, writer.index)
    try:
        writer.layout(wanted.header, wanted.data_bytes)
        targets = _targets(manifest, wanted, area)
        _fetch(store, manifest, targets, writer.memory, stop or threading.Event(), passed=passed)
    except BaseException:
        writer.abandon()
        raise
    if shares == 1:
        writer.ready()
    else:
        writer.partial()
    return manifest.step


def verify(
    store: Store,
    job: str,
    checkpoint: str,
    digest: str = "",
    progress: Callable[[int], object] | None = None,
) -> Manifest:
    """Read the manifest and every chunk, and keep none. Returns the manifest.

    `progress` is called with the stored bytes of chunks, in threads. Raises as `load` does."""
    manifest = read_manifest(store, job, checkpoint, digest)

    def one(run: ChunkRun) -> None:
        if run.alone:
            chunk = manifest.chunks[run.numbers[0]]
            read_chunk(store, manifest.file(chunk), chunk, manifest.id)
        else:
            with runs.AT_A_TIME:
                for number, stored in runs.stored(store, manifest, run):
                    verified(stored, manifest.chunks[number], manifest.id)
        if progress is not None:
            progress(sum(manifest.chunks[number].stored for number in run.numbers))

    _each(store, manifest, range(len(manifest.chunks)), one)
    return manifest


def shard_of(manifest: Manifest, shard_id: str) -> ManifestShard:
    """One shard of a checkpoint. Raises CheckpointRefused if it has none of that id."""
    for shard in manifest.shards:
        if shard.shard == shard_id:
            return shard
    has = ", ".join(shard.shard for shard in manifest.shards[:8])
    raise CheckpointRefused(f"checkpoint {manifest.id}: has no shard {shard_id!r:.80}; it has {has}")


def _fetch(
    store: Store,
    manifest: Manifest,
    targets: list[list[_Target]],
    memory: memoryview,
    stop: threading.Event,
    *,
    passed: Callable[[int, int], object],
) -> None:
    def one(run: ChunkRun) -> None:
        if stop.is_set():
            raise CheckpointError(f"checkpoint {manifest.id}: stopped on request while it was loaded")
        if run.alone:
            (number,) = run.numbers
            _fetch_chunk(store, manifest, manifest.chunks[number], targets[number], memory)
        else:
            _fetch_run(store, manifest, run, targets, memory)
        for number in run.numbers:
            for target in targets[number]:
                passed(target.offset, target.nbytes)

    _each(store, manifest, [number for number, wanted in enumerate(targets) if wanted], one)


def _fetch_chunk(
    store: Store, manifest: Manifest, chunk: Chunk, wanted: Sequence[_Target], memory: memoryview
) -> None:
    """Read one chunk: straight into the slot, if one place there holds all of it."""
    first, rest, name = wanted[0], wanted[1:], manifest.file(chunk)
    if first.nbytes == chunk.nbytes:
        content = memory[first.offset : first.offset + first.nbytes]
        touch(content)
        _either(store, lambda place: read_chunk_into(place, name, chunk, manifest.id, content))
    else:
        whole = _either(store, lambda place: read_chunk(place, name, chunk, manifest.id))
        content, rest = memoryview(whole), wanted
    _put(content, rest, memory)


def _fetch_run(
    store: Store, manifest: Manifest, run: ChunkRun, targets: list[list[_Target]], memory: memoryview
) -> None:
    """Read several chunks at once. One that is damaged is read again by itself, and from the mirror."""
    with runs.AT_A_TIME:
        for number, stored in _either(store, lambda place: runs.stored(place, manifest, run)):
            chunk = manifest.chunks[number]
            try:
                content = verified(stored, chunk, manifest.id)
            except CheckpointCorrupt:
                _fetch_chunk(store, manifest, chunk, targets[number], memory)
            else:
                _put(memoryview(content), targets[number], memory)


def _put(content: memoryview, wanted: Sequence[_Target], memory: memoryview) -> None:
    for at, offset, nbytes in wanted:
        memory[offset : offset + nbytes] = content[at : at + nbytes]


def _targets(manifest: Manifest, shard: ManifestShard, area: tuple[int, int]) -> list[list[_Target]]:
    """For each chunk, what of it lies in this area of the slot."""
    targets: list[list[_Target]] = [[] for _ in manifest.chunks]
    for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
        offset = tensor.offset
        for piece in pieces:
            start, end = max(offset, area[0]), min(offset + piece.nbytes, area[1])
            if start < end:
                targets[piece.chunk].append(_Target(piece.at + start - offset, start, end - start))
            offset += piece.nbytes
    return targets


def _each(
    store: Store, manifest: Manifest, numbers: Sequence[int], work: Callable[[ChunkRun], object]
) -> None:
    """Do the work for these chunks, run by run. The first failure stops the rest."""
    wanted = runs.runs(manifest.chunks, numbers)

    def foresee(run: ChunkRun) -> None:
        store.foresee(manifest.file(manifest.chunks[run.numbers[0]]))

    with ThreadPoolExecutor(WORKERS, "load") as pool:
        try:
            for start in range(0, len(wanted), _FORESEEN):
                list(pool.map(foresee, wanted[start : start + _FORESEEN]))
                list(pool.map(work, wanted[start : start + _FORESEEN]))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
