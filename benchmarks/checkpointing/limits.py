"""Measure the best that this machine can do: a warm copy in memory, and its disk past the page cache."""

from __future__ import annotations

import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.checkpointing.state import State

BLOCK_BYTES = 8 << 20
_READERS = 6


class WarmCopy:
    """A copy of the state into shared memory whose pages are mapped: the least that a snapshot can stall."""

    def __init__(self, state: State, folder: Path) -> None:
        self._sources = list(state.values())
        self._path = folder / "warm"
        with self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, sum(t.nbytes + 64 for t in self._sources))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._targets, at = [], 0
        for tensor in self._sources:
            flat = torch.frombuffer(self._memory, dtype=tensor.dtype, count=tensor.numel(), offset=at)
            self._targets.append(flat.view(tensor.shape))
            at += -(-tensor.nbytes // 64) * 64
        self.seconds()

    def seconds(self) -> float:
        """Make one copy of everything, and return how long it took."""
        begun = time.perf_counter()
        for target, source in zip(self._targets, self._sources, strict=True):
            target.copy_(source)
        return time.perf_counter() - begun

    def close(self) -> None:
        """Free the memory."""
        self._targets.clear()
        self._path.unlink()


def disk_write_s(path: Path, nbytes: int) -> float:
    """The seconds to write `nbytes` in 8 MiB blocks with O_DIRECT into one file, fsync included."""
    block = mmap.mmap(-1, BLOCK_BYTES)
    block.write(os.urandom(BLOCK_BYTES))
    begun = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for at in range(0, nbytes, BLOCK_BYTES):
            os.pwrite(descriptor, block, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return time.perf_counter() - begun


def disk_read_s(path: Path) -> float:
    """The seconds to read such a file with O_DIRECT, in blocks of 8 MiB, six of them at a time."""
    own = threading.local()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(at: int) -> None:
        if not hasattr(own, "block"):
            own.block = mmap.mmap(-1, BLOCK_BYTES)
        os.preadv(descriptor, [own.block], at)

    try:
        begun = time.perf_counter()
        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(read, range(0, os.fstat(descriptor).st_size, BLOCK_BYTES)))
        return time.perf_counter() - begun
    finally:
        os.close(descriptor)


def drop_caches() -> bool:
    """Empty the page cache, so that reads come from the disk. False when that is not permitted."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        return False
    return True
