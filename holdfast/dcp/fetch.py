"""Fetch verified bytes from storage into tensors.

Each chunk is read once and checked, and only then copied to where it belongs. No byte that does not verify
reaches a tensor."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from holdfast.checkpoint.reading import read_chunk_into
from holdfast.dcp.memory import address, scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.storage.store import Store
    from holdfast.checkpoint.whole import Box

WORKERS = 4
"""Chunks in flight; each has one buffer of a chunk's size."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a stored box (it begins at `offsets` within the box) and the tensor to put it into."""

    box: Box
    offsets: tuple[int, ...]
    target: torch.Tensor


class _Copy(NamedTuple):
    """chunk[at : at + nbytes] goes to buffer[start : start + nbytes] of a job."""

    job: _Job
    at: int
    start: int
    nbytes: int


def fetch(store: Store, manifest: Manifest, regions: Iterable[Region]) -> None:
    """Fill the regions' targets. Raises CheckpointCorrupt naming the chunk, StorageError."""
    wanted: dict[int, list[_Copy]] = {}
    for region in regions:
        job = _Job(region)
        for number, copy in job.copies():
            wanted.setdefault(number, []).append(copy)

    def one(number: int) -> None:
        chunk = manifest.chunks[number]
        source = scratch(chunk.nbytes)
        read_chunk_into(store, manifest.file(chunk), chunk, manifest.id, source)
        for job, at, start, nbytes in wanted[number]:
            job.put(source[at : at + nbytes], start)

    with ThreadPoolExecutor(WORKERS, "holdfast-dcp") as pool:
        try:
            for _ in pool.map(one, wanted):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Job:
    """One region: read straight into a target that is one run of memory, else through a buffer."""

    def __init__(self, region: Region) -> None:
        self._region, target = region, region.target
        self._strides = _strides(region.box.sizes)
        item = target.element_size()
        lengths = tuple(target.shape)
        first = sum(at * stride for at, stride in zip(region.offsets, self._strides, strict=True))
        last = first + sum((size - 1) * stride for size, stride in zip(lengths, self._strides, strict=True))
        self._begin, self._end = (first * item, (last + 1) * item) if target.numel() else (0, 0)
        straight = self._end - self._begin == target.nbytes
        self._direct = (
            straight and target.is_contiguous() and target.device.type == "cpu" and not target.is_conj()
        )
        self._left = 0
        self._lock = threading.Lock()
        self._buffer: torch.Tensor | None = None

    def copies(self) -> list[tuple[int, _Copy]]:
        """Chunk numbers, each with a copy of what belongs to this region."""
        found, at = [], 0
        for piece in self._region.box.pieces:
            start, end = max(at, self._begin), min(at + piece.nbytes, self._end)
            if start < end:
                found.append(
                    (piece.chunk, _Copy(self, piece.at + start - at, start - self._begin, end - start))
                )
            at += piece.nbytes
        self._left = len(found)
        return found

    def put(self, source: memoryview, start: int) -> None:
        """Take some bytes; the last ones complete the target."""
        with self._lock:
            if self._buffer is None and not self._direct:
                self._buffer = torch.empty(self._end - self._begin, dtype=torch.uint8)
        into = self._region.target if self._buffer is None else self._buffer
        ctypes.memmove(into.data_ptr() + start, address(source), len(source))
        with self._lock:
            self._left -= 1
            if self._left or self._buffer is None:
                return
        target = self._region.target
        stored = self._buffer.view(target.dtype).as_strided(tuple(target.shape), self._strides)
        with torch.no_grad():
            target.copy_(stored)
        self._buffer = None


def _strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
