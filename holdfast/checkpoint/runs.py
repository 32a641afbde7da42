"""Read neighbouring chunks of one bundle with one request, and verify each."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import NotAFile
from holdfast.checkpoint.format.chunks import BUNDLE_BYTES_MAX
from holdfast.checkpoint.reading import absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.storage.store import Store

_GAP_BYTES_MAX = 4 << 20
"""Bytes that nobody wants are read if that saves a request; if there are more, a request costs less."""
AT_A_TIME = threading.BoundedSemaphore(3)
"""A run is in memory once, and twice for a moment: so many at a time."""


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Chunks that are read together: `nbytes` of one file from byte `start` on.

    `numbers`: their places in the manifest's table. A chunk that is a file of its own is a run by itself."""

    numbers: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def alone(self) -> bool:
        """Whether it is one chunk."""
        return len(self.numbers) == 1


def runs(chunks: Sequence[Chunk], numbers: Sequence[int]) -> list[ChunkRun]:
    """The runs of these chunks, in the order of their first numbers."""
    found: list[ChunkRun] = []
    last: dict[str, int] = {}  # of each bundle, the run that may still grow
    for number in sorted(numbers, key=lambda each: (chunks[each].bundle, chunks[each].start, each)):
        chunk = chunks[number]
        index = last.get(chunk.bundle) if chunk.bundle else None
        grown = _grown(found[index], number, chunk) if index is not None else None
        if index is not None and grown is not None:
            found[index] = grown
            continue
        last[chunk.bundle] = len(found)
        found.append(ChunkRun((number,), chunk.start, chunk.stored))
    return sorted(found, key=lambda run: min(run.numbers))


def _grown(run: ChunkRun, number: int, chunk: Chunk) -> ChunkRun | None:
    """The run with one more chunk; None: it is too far away, or there would be too many bytes."""
    end = run.start + run.nbytes
    nbytes = max(end, chunk.start + chunk.stored) - run.start
    if chunk.start - end > _GAP_BYTES_MAX or nbytes > BUNDLE_BYTES_MAX:
        return None
    return ChunkRun((*run.numbers, number), run.start, nbytes)


def stored(store: Store, manifest: Manifest, run: ChunkRun) -> list[tuple[int, memoryview]]:
    """The stored bytes of each chunk of a run in a bundle, not verified: fewer where the file is too short.

    Call it, and use them, within `AT_A_TIME`. Raises CheckpointCorrupt if there is no such file."""
    first = manifest.chunks[run.numbers[0]]
    try:
        content = memoryview(store.read(manifest.file(first), run.nbytes, run.start))
    except (FileNotFoundError, NotAFile) as error:
        raise absent(manifest.id, first, error) from error
    return [(number, _part(content, manifest.chunks[number], run.start)) for number in run.numbers]


def _part(content: memoryview, chunk: Chunk, start: int) -> memoryview:
    return content[chunk.start - start : chunk.start - start + chunk.stored]
