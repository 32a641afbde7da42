"""View tensors as plain memory: scattered tensors as one slot, and page-aligned buffers per thread.

Direct I/O needs page-aligned memory, which torch's allocator does not give. So those bytes pass through a
small buffer of each thread, at the speed of memory, and stay in the cache for the hash."""

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
"""Smaller writes use the page cache and need no alignment."""
_own = threading.local()


def scratch(nbytes: int) -> memoryview:
    """A page-aligned buffer of this thread, one chunk at most; the next call returns the same one."""
    if not hasattr(_own, "room"):
        _own.room = memoryview(mmap.mmap(-1, CHUNK_BYTES))
    room: memoryview = _own.room
    return room[:nbytes]


def address(memory: memoryview) -> int:
    """The address at which it begins."""
    begin: int = np.frombuffer(memory, np.uint8).ctypes.data
    return begin


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in row order in host memory: itself if they lie so already, else a copy."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor that is `flat`. They stay while the view is held."""
    area = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    area._keeps = tensor  # type: ignore[attr-defined]
    return memoryview(area).cast("B")


class Scattered:
    """Tensors at the places of a layout, read like a slot: memory[start:end], within one tensor.

    A tensor is requested when its first byte is read, and released after its last byte. So of a state on a
    GPU, only the part that is being written is in host memory.

    `lasting`: what was read stays as it is when more is read. Else a large run that begins in the middle of a
    page is given in a buffer of the thread, aligned for direct writes, until the thread reads the next."""

    def __init__(
        self, placed: Sequence[Tensor], ask: Sequence[Callable[[], torch.Tensor]], *, lasting: bool
    ) -> None:
        self._lasting = lasting
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
        if self._lasting or nbytes < ALIGN_FROM_BYTES or address(view) % PAGE_BYTES == 0:
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
