"""Read a checkpoint again before it is needed, and repair what has rotted.

A chunk that is missing or does not hash to its name is taken from memory, where a rank may still hold its
bytes, or from the mirror, and is written again, verified; in a bundle, in its place there. The storage limits
the reading speed: use `store.slowed(...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.format import chunks, codec
from holdfast.checkpoint.reading import read_chunk

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.checkpoint.storage.store import Store

    Memory = Callable[[str], Bytes | None]
    """Returns the raw bytes of a chunk by its blake3, if a snapshot in memory still has them; else None."""


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """What was found. `failed`: what is wrong with each chunk that could not be repaired."""

    chunks: int
    bytes_read: int
    repaired: tuple[str, ...]  # digests of chunks
    failed: tuple[str, ...]


def scrub(
    store: Store,
    manifest: Manifest,
    mirror: Store | None = None,
    memory: Memory | None = None,
    stop: threading.Event | None = None,
) -> ScrubResult:
    """Read every chunk of a checkpoint, one after the other, and repair what is not as it was written.

    Blocks; setting `stop` ends it at the next chunk, with a CheckpointError. Raises StorageError if the
    storage itself fails."""
    repaired, failed, read = [], [], 0
    for chunk in manifest.chunks:
        if stop is not None and stop.is_set():
            raise CheckpointError(f"checkpoint {manifest.id}: stopped on request while it was scrubbed")
        try:
            read_chunk(store, manifest.file(chunk), chunk, manifest.id)
            read += chunk.stored
        except CheckpointCorrupt as error:
            if _repair(store, manifest, chunk, mirror or store.second, memory):
                repaired.append(chunk.blake3)
            else:
                failed.append(str(error))
    store.flush()
    return ScrubResult(len(manifest.chunks), read, tuple(repaired), tuple(failed))


def _repair(
    store: Store, manifest: Manifest, chunk: Chunk, mirror: Store | None, memory: Memory | None
) -> bool:
    stored, name = _from_memory(chunk, memory) if memory is not None else None, manifest.file(chunk)
    if stored is None and mirror is not None:
        stored = _from_mirror(mirror, manifest, chunk)
    content = _mended(store, name, chunk, stored) if stored is not None else None
    if content is None and chunk.bundle and mirror is not None:
        content = _bundle(mirror, name, chunk)
    if content is None:
        return False
    store.replace(name, content)
    read_chunk(store, name, chunk, manifest.id)
    return True


def _mended(store: Store, name: str, chunk: Chunk, stored: Bytes) -> Bytes | None:
    """What the chunk's file should hold; None: too little of its bundle is there to put the chunk into."""
    if not chunk.bundle:
        return stored
    try:
        found = store.read(name, chunks.BUNDLE_BYTES_MAX)
    except FileNotFoundError:
        return None
    end = chunk.start + chunk.stored
    return b"".join((found[: chunk.start], stored, found[end:])) if len(found) >= chunk.start else None


def _bundle(mirror: Store, name: str, chunk: Chunk) -> Bytes | None:
    """The whole bundle, as it was written; None: the mirror has no such bundle."""
    try:
        found = mirror.read(name, chunks.BUNDLE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return found if chunks.name(found) == chunk.bundle else None


def _from_memory(chunk: Chunk, memory: Memory) -> Bytes | None:
    content = memory(chunk.blake3)
    if content is None or chunks.name(content) != chunk.blake3:
        return None
    stored = codec.encode(content, chunk.codec)
    return stored if stored is not None and len(stored) == chunk.stored else None


def _from_mirror(mirror: Store, manifest: Manifest, chunk: Chunk) -> Bytes | None:
    name = manifest.file(chunk)
    try:
        read_chunk(mirror, name, chunk, manifest.id)
        return mirror.read(name, chunk.stored, chunk.start)
    except (CheckpointCorrupt, FileNotFoundError):
        return None
