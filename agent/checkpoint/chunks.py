"""How a slot is cut into chunks, and what is known of the chunks that its base already has.

A tensor of more than 64 KiB is cut into pieces of 8 MiB, each a chunk of its own. Smaller tensors are packed
together. A chunk is named by the blake3 of its bytes; xxh3_128, three times as fast, tells that the same
place holds what it held at the last save, so that it need not be named again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import blake3
import xxhash

from agent.checkpoint.layout import SMALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.checkpoint.layout import Tensor
    from agent.checkpoint.names import Bytes

CHUNK_BYTES = 8 << 20
PACK_BYTES = 1 << 20
"""A pack is written again when any tensor in it changed: smaller than a chunk."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one tensor. `start` counts from the tensor's first byte, `offset` from the slot's."""

    tensor: int
    start: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What becomes one chunk: one span of a large tensor, or several whole small ones."""

    spans: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return sum(span.nbytes for span in self.spans)

    def content(self, memory: memoryview) -> Bytes:
        """Its bytes: the slot's own memory for a single span, else a copy of PACK_BYTES at most."""
        parts = [memory[span.offset : span.offset + span.nbytes] for span in self.spans]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def cut(tensors: Iterable[Tensor]) -> list[Cut]:
    """All of the tensors' bytes, each exactly once, in their order; the packs come last."""
    large, small = [], []
    for index, tensor in enumerate(tensors):
        if tensor.nbytes > SMALL_BYTES:
            large += [Cut((span,)) for span in _pieces(index, tensor)]
        elif tensor.nbytes:
            small.append(Span(index, 0, tensor.offset, tensor.nbytes))
    return large + list(_packs(small))


def name(content: Bytes) -> str:
    """The blake3 of a chunk's bytes, in hex."""
    return blake3.blake3(content).hexdigest()


def fingerprint(content: Bytes) -> bytes:
    """The xxh3_128 of a chunk's bytes."""
    return xxhash.xxh3_128_digest(content)


def _pieces(index: int, tensor: Tensor) -> Iterator[Span]:
    for start in range(0, tensor.nbytes, CHUNK_BYTES):
        yield Span(index, start, tensor.offset + start, min(CHUNK_BYTES, tensor.nbytes - start))


def _packs(spans: list[Span]) -> Iterator[Cut]:
    pack: list[Span] = []
    size = 0
    for span in spans:
        if pack and size + span.nbytes > PACK_BYTES:
            yield Cut(tuple(pack))
            pack, size = [], 0
        pack.append(span)
        size += span.nbytes
    if pack:
        yield Cut(tuple(pack))


Place = tuple[tuple[str, int, int], ...]
"""Where a chunk's bytes come from: (tensor name, start, nbytes) of each span."""


@dataclass(slots=True)
class BaseIndex:
    """What one process knows of one base: which chunks are durable, and what each place held last."""

    base: str
    durable: set[str] = field(default_factory=set)
    places: dict[Place, tuple[bytes, str]] = field(default_factory=dict)


class Claims:
    """Which worker of one save takes care of which chunk: equal chunks are written once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    def take(self, digest: str) -> bool:
        """True for the first who asks."""
        with self._lock:
            if digest in self._taken:
                return False
            self._taken.add(digest)
            return True
