"""Read and write large files past the page cache: it costs less CPU, and the training's files stay cached.

O_DIRECT needs page-aligned memory and sizes, and a file system that supports it. Snapshot slots are aligned
so that whole chunks qualify. Everything else goes through the page cache."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import NotAFile
from holdfast.checkpoint.storage.pacing import PIECE_BYTES
from holdfast.ipc.shm import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.checkpoint.storage.pacing import UploadPace

_DIRECT_FROM_BYTES = 1 << 20
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_REFUSALS = {errno.ELOOP: "a link", errno.ENXIO: "a socket, or a device that does not exist"}


def open_bulk(path: Path, flags: int, nbytes: int) -> int:
    """Open a file to move `nbytes`: direct if that pays and is allowed. Returns the descriptor."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if nbytes >= _DIRECT_FROM_BYTES:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags, 0o644)


def open_regular(path: Path, nbytes: int = 0) -> int:
    """Open a regular file to read `nbytes`. Returns the descriptor.

    Raises NotAFile at once for anything else: opening a FIFO without a writer would block, and a device may
    do anything."""
    try:
        descriptor = open_bulk(path, os.O_RDONLY | os.O_NONBLOCK, nbytes)
    except OSError as error:
        kind = _REFUSALS.get(error.errno or 0)
        if kind is None:
            raise
        raise NotAFile(str(path), kind) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise NotAFile(str(path), _KINDS.get(stat.S_IFMT(mode), "something else"))


def write_all(descriptor: int, data: memoryview, pace: UploadPace | None = None) -> int:
    """Write all of it from the file's start, no faster than `pace`. Returns the bytes written.

    Raises OSError."""
    if pace is None or not pace.limited:
        return _move(descriptor, data, lambda part, at: os.pwrite(descriptor, part, at))

    def piece(part: memoryview, at: int) -> int:
        pace.take(min(len(part), PIECE_BYTES))
        return os.pwrite(descriptor, part[:PIECE_BYTES], at)

    return _move(descriptor, data, piece)


def read_all(descriptor: int, target: memoryview) -> int:
    """Fill `target` from the file's start. Returns the bytes read, fewer if the file is shorter."""
    return _move(descriptor, target, lambda part, at: os.preadv(descriptor, [part], at))


def _move(descriptor: int, memory: memoryview, step: Callable[[memoryview, int], int]) -> int:
    done = 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if flags & os.O_DIRECT:
        try:
            done = _run(memory, 0, len(memory) // PAGE_BYTES * PAGE_BYTES, step)
        except OSError as error:
            if error.errno != errno.EINVAL:  # not aligned after all: everything goes through the cache
                raise
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return _run(memory, done, len(memory), step)


def _run(memory: memoryview, done: int, end: int, step: Callable[[memoryview, int], int]) -> int:
    while done < end and (count := step(memory[done:end], done)):
        done += count
    return done
