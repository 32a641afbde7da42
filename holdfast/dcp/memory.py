"""View tensors as plain memory: a scattered state as one slot, and page-aligned buffers per thread.

Direct I/O wants page-aligned memory, which tensors of torch's allocator are not: their bytes go through a
small buffer of each thread, at the speed of the memory and warm in the cache for the hash."""

from __future__ import annotations

import bisect
import ctypes
import mmap
import threading
from typing import TYPE_CHECKING

import numpy as np

from holdfast.checkpoint.format.cutting import CHUNK_BYTES
from holdfast.ipc.shm import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from holdfast.ipc.layout import Tensor

ALIGN_FROM_BYTES = 1 << 20
"""Smaller writes do not go past the page cache."""
_own = threading.local()


def scratch(nbytes: int) -> memoryview:
    """Page-aligned room of this thread, one chunk at most; the next call gives it again."""
    if not hasattr(_own, "room"):
        _own.room = memoryview(mmap.mmap(-1, CHUNK_BYTES))
    room: memoryview = _own.room
    return room[:nbytes]


def address(memory: memoryview) -> int:
    """Where it begins."""
    begin: int = np.frombuffer(memory, np.uint8).ctypes.data
    return begin


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in row order in the host's memory: itself where it is so already, else a copy."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor that is `flat`; they stay while this is held."""
    area = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    area._keeps = tensor  # type: ignore[attr-defined]
    return memoryview(area).cast("B")


class Scattered:
    """Tensors at the places of a layout, read as if they lay in a slot: memory[start:end] within a tensor.

    A tensor is asked for when its first byte is, and let go when its last byte was: of a state on a GPU only
    as much is in the host's memory as is being written."""

    def __init__(self, placed: Sequence[Tensor], ask: Sequence[Callable[[], torch.Tensor]]) -> None:
        self._placed, self._ask = [tensor for tensor in placed if tensor.nbytes], []
        self._ask = [one for one, tensor in zip(ask, placed, strict=True) if tensor.nbytes]
        self._begins = [tensor.offset for tensor in self._placed]
        self._locks = [threading.Lock() for _ in self._placed]
        self._views: list[memoryview | None] = [None] * len(self._placed)
        self._left = [tensor.nbytes for tensor in self._placed]

    def __getitem__(self, span: slice) -> memoryview:
        index = bisect.bisect_right(self._begins, span.start) - 1
        start = span.start - self._begins[index]
        nbytes = span.stop - span.start
        view = self._view(index, nbytes)[start : start + nbytes]
        if nbytes < ALIGN_FROM_BYTES or address(view) % PAGE_BYTES == 0:
            return view
        aligned = scratch(nbytes)
        ctypes.memmove(address(aligned), address(view), nbytes)
        return aligned

    def _view(self, index: int, nbytes: int) -> memoryview:
        with self._locks[index]:
            view = self._views[index]
            if view is None:
                view = self._views[index] = memory_of(flat(self._ask[index]()))
            self._left[index] -= nbytes
            if self._left[index] <= 0:
                self._views[index] = None
            return view
