"""Write a file, sync it, and read it back: how fast, and whether it is what was written.

The file is random bytes, so that nothing can compress it, and is removed in the end. Before it is read, the
kernel is asked to forget its pages."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 4 << 20
BYTES_MAX = 256 << 20
FREE_SHARE = 10
"""At most one in so many bytes that are free are written."""
SYNCS = 16
RATE, DURATION = "B/s", "s"


def readings(folder: Path, seconds: float) -> Iterator[NodeReading]:
    """Readings of the disk below a folder. `seconds`: how long is written at most."""
    try:
        most = min(BYTES_MAX, shutil.disk_usage(folder).free // FREE_SHARE)
        if most < BLOCK_BYTES:
            why = f"less than {FREE_SHARE * BLOCK_BYTES >> 20} MiB are free in {folder}"
            yield NodeReading("disk.write", None, RATE, broken=why)
            return
        with tempfile.TemporaryDirectory(prefix="holdfast-check-", dir=folder) as made:
            yield from _of_file(Path(made, "bytes"), most, seconds)
            yield NodeReading("disk.sync", _sync_s(Path(made, "small")), DURATION, higher=False)
    except OSError as error:
        yield NodeReading("disk", None, "", broken=f"{folder}: {error.strerror}")


def _of_file(path: Path, most: int, seconds: float) -> Iterator[NodeReading]:
    written, read = hashlib.blake2b(), hashlib.blake2b()
    size, took_s = 0, 0.0
    with path.open("wb", buffering=0) as file:
        while size + BLOCK_BYTES <= most and (took_s < seconds or not size):
            block = os.urandom(BLOCK_BYTES)
            written.update(block)
            began = time.perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            took_s, size = took_s + time.perf_counter() - began, size + BLOCK_BYTES
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    yield NodeReading("disk.write", size / took_s, RATE)
    took_s = 0.0
    with path.open("rb", buffering=0) as file:
        while True:
            began = time.perf_counter()
            block = file.read(BLOCK_BYTES)
            took_s += time.perf_counter() - began
            if not block:
                break
            read.update(block)
    if read.digest() != written.digest():
        yield NodeReading("disk.read", None, RATE, broken="the bytes read are not those that were written")
    else:
        yield NodeReading("disk.read", size / took_s, RATE)


def _sync_s(path: Path) -> float:
    """The median time of a small write that is synced (s): etcd, which must be near, waits for these."""
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 512)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return median(times)
