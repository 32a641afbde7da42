"""Identify chunks by their content, and remember which of them a base already has.

A chunk is named by the blake3 of its raw bytes. xxh3_128, which is many times as fast, shows that a place
holds what it held at the last save, so that its chunk need not be named again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import blake3
import xxhash

from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.choosing import Meter
from holdfast.checkpoint.format.names import PLAIN, Bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

ALGORITHM = "blake3"
BUNDLE_BYTES_MAX = 64 << 20
"""No bundle is larger."""


def name(content: Bytes) -> str:
    """The blake3 of a chunk's bytes, in hex."""
    return blake3.blake3(content).hexdigest()


def fingerprint(content: Bytes) -> bytes:
    """The xxh3_128 of a chunk's bytes."""
    return xxhash.xxh3_128_digest(content)


class Chunk(NamedTuple):
    """One chunk of a base. `nbytes`: its raw bytes, which are hashed; `stored`: its bytes on storage.

    `bundle`: the digest of the bundle in which it begins at byte `start`; "": it is a file of its own."""

    blake3: str
    nbytes: int
    stored: int
    codec: str = PLAIN
    algorithm: str = ALGORITHM
    bundle: str = ""
    start: int = 0


def file(job: str, base: str, chunk: Chunk) -> str:
    """The file of a base that holds this chunk."""
    if chunk.bundle:
        return names.bundle(job, base, chunk.bundle)
    return names.chunk(job, base, chunk.blake3, chunk.codec)


class Ref(NamedTuple):
    """`nbytes` raw bytes of a chunk, from its byte `at` on."""

    chunk: Chunk
    at: int
    nbytes: int


Place = tuple[str, tuple[tuple[str, int, int], ...]]
"""Where a chunk's bytes come from: the shard, and (tensor name, start, nbytes) of each span."""


class Seen(NamedTuple):
    """What a place held at the last save.

    - `mark`: its fingerprint; b"" if the place had changed and has rows: these show what it held then, and
      one pass over its bytes is enough.
    - `refs`: where its bytes are stored.
    - `rows`: the fingerprints of its rows (rows.py); b"" if rows are not compared."""

    mark: bytes
    refs: tuple[Ref, ...]
    rows: bytes = b""


@dataclass(slots=True)
class Named:
    """The chunks that this process has named by a checkpoint so far (`now`), and by the one before."""

    checkpoint: str = ""
    now: set[Chunk] = field(default_factory=set)
    before: set[Chunk] = field(default_factory=set)


@dataclass(slots=True)
class BaseIndex:
    """What one process knows of one base: durable chunks by digest, and what each place held."""

    base: str
    durable: dict[str, Chunk] = field(default_factory=dict)
    places: dict[Place, Seen] = field(default_factory=dict)
    dense: set[Place] = field(default_factory=set)
    """Places of which most rows change from save to save: their rows are not compared."""
    meter: Meter = field(default_factory=Meter)
    named: Named = field(default_factory=Named)

    def has_named(self, checkpoint: str, chunks: Iterable[Chunk]) -> None:
        """Note that these chunks are named by one more part of a checkpoint."""
        if self.named.checkpoint != checkpoint:
            self.named = Named(checkpoint, set(), self.named.now)
        self.named.now.update(chunks)

    def named_before(self, checkpoint: str) -> set[Chunk]:
        """What this process named by the newest checkpoint before this one."""
        return self.named.before if self.named.checkpoint == checkpoint else self.named.now


class ChunkClaims:
    """Which worker of a save writes which chunk: equal chunks are written once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, threading.Event] = {}
        self._chunks: dict[str, Chunk] = {}

    def take(self, digest: str) -> bool:
        """True for the first caller, which writes the chunk and then calls `give`."""
        with self._lock:
            if digest in self._done:
                return False
            self._done[digest] = threading.Event()
            return True

    def give(self, digest: str, chunk: Chunk | None) -> None:
        """Publish the chunk as it was written; None: writing it failed."""
        if chunk is not None:
            self._chunks[digest] = chunk
        self._done[digest].set()

    def wait(self, digest: str) -> Chunk | None:
        """The chunk, once its writer has given it; None if that failed."""
        self._done[digest].wait()
        return self._chunks.get(digest)
