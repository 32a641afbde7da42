"""Read one chunk back and verify it: bytes that do not hash to the chunk's name are never returned."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import CheckpointCorrupt, NotAFile
from holdfast.checkpoint.format import chunks, codec
from holdfast.checkpoint.format.names import PLAIN

if TYPE_CHECKING:
    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.checkpoint.storage.store import Store


_DECODING = threading.BoundedSemaphore(4)
"""A chunk that is being decoded is in memory twice: so many at a time."""
_ENCODED = threading.BoundedSemaphore(8)
"""So many encoded chunks are in memory at a time: those that are decoded, and as many that are read."""


def read_chunk(store: Store, name: str, chunk: Chunk, checkpoint: str) -> Bytes:
    """A chunk's raw bytes. Raises CheckpointCorrupt if it is missing or not what was written."""
    with _ENCODED if chunk.codec != PLAIN else contextlib.nullcontext():
        return verified(_stored(store, name, chunk, checkpoint), chunk, checkpoint)


def read_chunk_into(store: Store, name: str, chunk: Chunk, checkpoint: str, target: memoryview) -> None:
    """Read a chunk's raw bytes into memory of their size; directly, if nothing has to be decoded.

    Raises as `read_chunk` does; then `target` may hold unverified bytes."""
    if chunk.codec != PLAIN:
        with _ENCODED:
            stored = _stored(store, name, chunk, checkpoint)
            with _DECODING:
                target[:] = _plain(stored, chunk, checkpoint)
        return
    try:
        size = store.read_into(name, target, chunk.start)
    except (FileNotFoundError, NotAFile) as error:
        raise absent(checkpoint, chunk, error) from error
    _check_size(checkpoint, chunk, min(size, chunk.stored) if chunk.bundle else size)
    _check_digest(checkpoint, chunk, target)


def corrupt(checkpoint: str, chunk: Chunk, problem: str) -> CheckpointCorrupt:
    """The error that says what is wrong with which chunk, and in which bundle it is."""
    bundle = f" in bundle {chunk.bundle}" if chunk.bundle else ""
    return CheckpointCorrupt(checkpoint, f"chunk {chunk.blake3}{bundle}", problem)


def _stored(store: Store, name: str, chunk: Chunk, checkpoint: str) -> bytes:
    beyond = 0 if chunk.bundle else 1  # a file of one chunk has no more bytes
    try:
        stored = store.read(name, chunk.stored + beyond, chunk.start)
    except (FileNotFoundError, NotAFile) as error:
        raise absent(checkpoint, chunk, error) from error
    _check_size(checkpoint, chunk, len(stored))
    return stored


def absent(checkpoint: str, chunk: Chunk, error: FileNotFoundError | NotAFile) -> CheckpointCorrupt:
    """The error that says which chunk has no file."""
    return corrupt(checkpoint, chunk, str(error) if isinstance(error, NotAFile) else "is missing")


def verified(stored: Bytes, chunk: Chunk, checkpoint: str) -> Bytes:
    """A chunk's raw bytes, from its stored ones. Raises CheckpointCorrupt if it is not what was written."""
    _check_size(checkpoint, chunk, len(stored))
    with _DECODING:
        return _plain(stored, chunk, checkpoint)


def _plain(stored: Bytes, chunk: Chunk, checkpoint: str) -> Bytes:
    try:
        content = codec.decode(stored, chunk.codec, chunk.nbytes)
    except codec.CodecError as error:
        raise corrupt(checkpoint, chunk, f"its bytes are no {chunk.codec}: {error}") from error
    _check_digest(checkpoint, chunk, content)
    return content


def _check_size(checkpoint: str, chunk: Chunk, size: int) -> None:
    if size != chunk.stored:
        more = "more" if size > chunk.stored else "fewer"
        raise corrupt(checkpoint, chunk, f"has {more} than {chunk.stored} bytes")


def _check_digest(checkpoint: str, chunk: Chunk, content: Bytes) -> None:
    found = chunks.name(content)
    if found != chunk.blake3:
        raise corrupt(checkpoint, chunk, f"its bytes have digest {found}")
