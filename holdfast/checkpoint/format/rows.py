"""Write row deltas: if only few rows of a chunk changed, write those and refer to the rest.

A chunk's bytes are compared in grains: the rows of its tensor (several short rows together, long ones in
blocks). xxh3_128 shows which grains changed since the last save of this base. The changed grains of many
chunks are packed into new chunks. The bytes of a place are then pieces of older chunks and of such packs. No
chain is ever replayed: the pieces name their bytes directly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import xxhash

from holdfast.checkpoint.format.chunks import Ref
from holdfast.checkpoint.format.cutting import CHUNK_BYTES
from holdfast.ipc.layout import SMALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.checkpoint.format.chunks import Place
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.ipc.layout import Tensor

_MARK_WORDS = 2  # of 8 bytes
_GRAIN_MIN = 512
_GRAIN_MAX = 64 * 1024
_RUNS_MAX = 4096
_CHUNKS_MAX = 32
_CHANGED_MOST = 0.5
"""If a larger share has changed, or there are more runs, or pieces of more chunks, the place is written
whole."""

Run = tuple[int, int]
"""A range [from, to) of a chunk's bytes that changed."""


def grain(tensor: Tensor) -> int:
    """The bytes of a tensor that are compared together; 0: the tensor is too small to compare."""
    if tensor.nbytes <= SMALL_BYTES:
        return 0
    row = tensor.nbytes // tensor.shape[0] if len(tensor.shape) > 1 else _GRAIN_MAX
    if row > _GRAIN_MAX:
        return _GRAIN_MAX
    return row * math.ceil(_GRAIN_MIN / row)


def marks(content: Bytes, start: int, size: int) -> bytes:
    """The xxh3_128 of each grain. `start`: where the content is in its tensor; grains count from there."""
    digest = xxhash.xxh3_128_digest
    first = size - start % size  # where the second grain begins
    rest = [digest(content[low : low + size]) for low in range(first, len(content), size)]
    return b"".join([digest(content[:first]), *rest])


def changed(before: bytes, after: bytes, nbytes: int, start: int, size: int) -> list[Run] | None:
    """The runs of grains whose marks differ; None if writing only them does not pay."""
    if not before or len(before) != len(after):
        return None
    import numpy as np  # imported here: an agent without such tensors need not load it

    words = np.frombuffer(before, np.uint64) != np.frombuffer(after, np.uint64)
    differs = words.reshape(-1, _MARK_WORDS).any(axis=1)
    edges = np.flatnonzero(np.diff(differs.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    if len(edges) > _RUNS_MAX:
        return None
    first = size - start % size  # where the second grain begins

    def at(index: int) -> int:
        return min(first + (index - 1) * size, nbytes) if index else 0

    runs = [(at(low), at(high)) for low, high in edges.tolist()]
    if sum(high - low for low, high in runs) > _CHANGED_MOST * nbytes:
        return None
    return runs


@dataclass(slots=True)
class Delta:
    """A place of which only `runs` are to be written.

    - `offset`: where its bytes begin in the slot.
    - `before`: where its bytes were at the last save.
    - `refs`: where they all are, once the pack with the changed ones is written; () before."""

    place: Place
    rows: bytes
    nbytes: int
    offset: int
    tensor: int
    runs: list[Run]
    before: tuple[Ref, ...]
    refs: tuple[Ref, ...] = field(default=())

    @property
    def changed(self) -> int:
        """Bytes to be written."""
        return sum(high - low for low, high in self.runs)

    def content(self, memory: memoryview) -> list[memoryview]:
        """The bytes for the pack."""
        return [memory[self.offset + low : self.offset + high] for low, high in self.runs]

    def place_in(self, pack: Ref) -> None:
        """Set `refs`: the changed bytes are those of `pack`, in their order."""
        self.refs = tuple(_woven(self.before, self.runs, self.nbytes, pack))


def pays(refs: Sequence[Ref], runs: Sequence[Run]) -> bool:
    """Whether the place would not consist of too many pieces or chunks."""
    return len(refs) + 2 * len(runs) <= _RUNS_MAX and len({ref.chunk for ref in refs}) < _CHUNKS_MAX


def packs(deltas: Iterable[Delta]) -> Iterator[list[Delta]]:
    """Groups of deltas whose changed bytes make one chunk together."""
    pack: list[Delta] = []
    size = 0
    for delta in deltas:
        if pack and size + delta.changed > CHUNK_BYTES:
            yield pack
            pack, size = [], 0
        pack.append(delta)
        size += delta.changed
    if pack:
        yield pack


def _woven(before: tuple[Ref, ...], runs: list[Run], nbytes: int, pack: Ref) -> Iterator[Ref]:
    """The place's bytes: the old ones up to each run, then the run's new ones."""
    old, done, at = _Cursor(before), 0, pack.at
    for low, high in runs:
        yield from old.take(low - done)
        old.skip(high - low)
        yield Ref(pack.chunk, at, high - low)
        at, done = at + high - low, high
    yield from old.take(nbytes - done)


class _Cursor:
    """Walks through the bytes of some refs."""

    def __init__(self, refs: tuple[Ref, ...]) -> None:
        self._refs, self._number, self._used = refs, 0, 0

    def take(self, nbytes: int) -> Iterator[Ref]:
        """Where the next bytes are."""
        while nbytes:
            chunk, at, length = self._refs[self._number]
            step = min(nbytes, length - self._used)
            yield Ref(chunk, at + self._used, step)
            self._used += step
            nbytes -= step
            if self._used == length:
                self._number, self._used = self._number + 1, 0

    def skip(self, nbytes: int) -> None:
        """Pass over the next bytes."""
        for _ in self.take(nbytes):
            pass
