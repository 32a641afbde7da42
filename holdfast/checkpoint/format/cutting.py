"""Plan the chunks of a state: where it is cut, and which of its writers takes which chunk. Pure.

A tensor of more than 64 KiB is cut into pieces of the chunk size, each of them a chunk. Smaller tensors are
packed together. The chunk size is 8 MiB, or a smaller power of two if so many writers share the state that
each would get fewer than 16 chunks. So no writer has more than 1/16 above an equal part. All who know the
layout and the number of writers make the same plan, so it need not be sent."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ipc.layout import SMALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.format.names import Bytes
    from holdfast.ipc.layout import Tensor

CHUNK_BYTES = 8 << 20
"""The largest chunk."""
CHUNK_BYTES_MIN = SMALL_BYTES
PACK_BYTES = 1 << 20
"""The largest pack of small tensors. A pack is written again if any tensor in it changes, so it is smaller
than a chunk."""
CHUNKS_PER_SHARE = 16
"""Each writer's chunks, at least, where the state is large enough."""
_PLANS_KEPT = 64
_Place = tuple[int, int]  # offset and size of a tensor in the slot


class Span(NamedTuple):
    """A piece of one tensor. `start` counts from the tensor's first byte, `offset` from the slot's."""

    tensor: int
    start: int
    offset: int
    nbytes: int


class Cut(NamedTuple):
    """What becomes one chunk: one span of a large tensor, or several whole small tensors."""

    spans: tuple[Span, ...]
    nbytes: int

    def content(self, memory: memoryview) -> Bytes:
        """Its bytes: the slot's own memory for a single span, else a copy of at most PACK_BYTES."""
        parts = [memory[span.offset : span.offset + span.nbytes] for span in self.spans]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def plan(tensors: tuple[Tensor, ...], shares: int = 1) -> tuple[tuple[Cut, ...], ...]:
    """Every share's cuts: together all of the tensors' bytes, each exactly once. Plans are cached."""
    return _plan(tuple([(tensor.offset, tensor.nbytes) for tensor in tensors]), shares)


@lru_cache(_PLANS_KEPT)
def _plan(places: tuple[_Place, ...], shares: int) -> tuple[tuple[Cut, ...], ...]:
    total = sum([nbytes for _, nbytes in places])
    cuts = _cuts(places, chunk_bytes(total, shares))
    if shares == 1:
        return (tuple(cuts),)
    planned: list[list[Cut]] = [[] for _ in range(shares)]
    done = 0
    for cut in cuts:
        planned[(2 * done + cut.nbytes) * shares // (2 * total)].append(cut)
        done += cut.nbytes
    return tuple(tuple(cuts) for cuts in planned)


def chunk_bytes(total: int, shares: int) -> int:
    """The chunk size for `total` bytes and so many writers: a power of two."""
    size = CHUNK_BYTES
    while size > CHUNK_BYTES_MIN and total < size * shares * CHUNKS_PER_SHARE and shares > 1:
        size //= 2
    return size


def _cuts(places: tuple[_Place, ...], size: int) -> list[Cut]:
    """All cuts in the tensors' order, then the packs."""
    small, cuts = [], []
    for index, (offset, nbytes) in enumerate(places):
        if nbytes <= SMALL_BYTES:
            if nbytes:
                small.append(Span(index, 0, offset, nbytes))
        elif nbytes <= size:
            cuts.append(Cut((Span(index, 0, offset, nbytes),), nbytes))
        else:
            for start in range(0, nbytes, size):
                length = min(size, nbytes - start)
                cuts.append(Cut((Span(index, start, offset + start, length),), length))
    cuts += _packs(small, min(PACK_BYTES, size))
    return cuts


def _packs(spans: list[Span], most: int) -> Iterator[Cut]:
    pack: list[Span] = []
    size = 0
    for span in spans:
        if pack and size + span.nbytes > most:
            yield Cut(tuple(pack), size)
            pack, size = [], 0
        pack.append(span)
        size += span.nbytes
    if pack:
        yield Cut(tuple(pack), size)
