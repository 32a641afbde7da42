"""Give back the disk space at the beginning of a file that another process goes on writing to.

The beginning becomes a hole (fallocate(2), FALLOC_FL_PUNCH_HOLE): the writer needs to know nothing, no byte
that it writes meanwhile is lost, and every byte that is left keeps its place. Linux only; file systems
without holes say so."""

from __future__ import annotations

import ctypes
import errno
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
BLOCK_BYTES = 64 << 10
"""Holes end at a multiple of this. A block of the file system, which is smaller, is then never cut in two:
the rest of it would read as zeros."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def punch(descriptor: int, end_bytes: int) -> None:
    """Give back the space of whole blocks before byte `end_bytes`. Raises OSError."""
    nbytes = end_bytes // BLOCK_BYTES * BLOCK_BYTES
    while nbytes and _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, nbytes) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def begin(descriptor: int) -> int:
    """The first byte that is not in a hole; the size of the file when all of it is one."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return 0  # a file system that knows no holes
        return os.fstat(descriptor).st_size
