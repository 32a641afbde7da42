"""Allocate files of shared memory completely, or refuse with the fix. Standard library only."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast import removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE_BYTES = 4096
HEADER_ALIGN_BYTES = 64
"""In a slot, the header and each small tensor begin at a multiple of this."""
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module has no name for it
_FAULT_AROUND_BYTES = 64 << 10  # reading a byte maps so many around it: the kernel's default
_TOUCH_PIECE_BYTES = 64 << 20
_LOCK_TIMEOUT_S = 2.0  # locks are held for microseconds: after this time their holder is stopped
_LOCK_POLL_S = 0.0005


class ArenaError(RuntimeError):
    """An arena cannot be made, or a file is not an arena. The message names the file and the fix."""


def align(size: int, to: int) -> int:
    """`size` rounded up to a multiple of `to`, in bytes."""
    return -(-size // to) * to


def allocate(draft: Path, size: int) -> tuple[int, mmap.mmap]:
    """Create a file of `size` bytes, mode 0600, with every page in memory and mapped. Returns (descriptor,
    memory).

    `draft` has a name by `removal.draft_name`. Raises ArenaError with the bytes needed, the bytes free and
    the fix; then no file is left."""
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ArenaError(_refusal(draft, size, error)) from error
    try:
        if free_bytes(draft.parent) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, 0, size)
        memory = mmap.mmap(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        removal.draft(draft)
        raise ArenaError(_refusal(draft, size, error)) from error
    populate(memory)
    return descriptor, memory


def populate(memory: mmap.mmap) -> None:
    """Map every page for writing now, so that no later copy pays for it."""
    try:
        memory.madvise(_MADV_POPULATE_WRITE)
    except OSError:  # an older kernel: writing one byte of each page does the same, slower
        for offset in range(0, len(memory), PAGE_BYTES):
            memory[offset] = memory[offset]


def touch(memory: mmap.mmap | memoryview) -> None:
    """Map pages that are in memory already, also for writing.

    Reading one byte maps the pages around it too, which takes a tenth of the time of `populate`. Other
    threads may run between the pieces."""
    with memoryview(memory) as view:
        for start in range(0, len(view), _TOUCH_PIECE_BYTES):
            bytes(view[start : start + _TOUCH_PIECE_BYTES : _FAULT_AROUND_BYTES])


def unmap(memory: mmap.mmap, start: int, nbytes: int) -> None:
    """Take the whole pages of a run of shared memory out of this process's map. Their content stays.

    Whoever uses them maps them again. Unmapping all at the end takes as long, but then somebody waits."""
    first, end = align(start, PAGE_BYTES), (start + nbytes) // PAGE_BYTES * PAGE_BYTES
    if first < end:
        memory.madvise(mmap.MADV_DONTNEED, first, end - first)


@contextmanager
def locked(descriptor: int, path: Path) -> Iterator[None]:
    """Hold the lock on a file for a moment. Raises ArenaError if its holder does not release it."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            raise ArenaError(f"{path} is locked by a process that does not continue")
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_bytes(folder: Path) -> int:
    """How many bytes may still be written there. Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _refusal(draft: Path, needed: int, error: OSError) -> str:
    folder = draft.parent
    if not folder.is_dir():
        return f"no arena at {draft}: {folder} is not a folder; name another with --shm-dir"
    message = f"no arena of {needed} bytes at {draft}: {error.strerror or error}"
    if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
        return message
    return (
        f"{message}; needed {needed} bytes, free {free_bytes(folder)} bytes in {folder}. Mount a larger one "
        "(docker run --shm-size=..., on Kubernetes an emptyDir with medium: Memory at /dev/shm) or name "
        "another folder with --shm-dir"
    )
