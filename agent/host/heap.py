"""Keep the process from holding on to memory that it has freed.

glibc's malloc gives threads heaps of their own (up to eight per CPU), and each keeps what its largest moment
took. An agent saves and loads checkpoints in a dozen threads that allocate blocks of megabytes: with
two heaps it holds a third less at most, and after it a quarter. Freeing each block at once (a fixed
M_MMAP_THRESHOLD) would hold less still, but doubles the CPU time of a load: each page is cleared anew."""

from __future__ import annotations

import ctypes
import os

_M_ARENA_MAX = -8  # malloc.h
HEAPS = 2


def share_heaps() -> bool:
    """Have all threads that begin from now on share a few heaps; unless MALLOC_ARENA_MAX says how many, or
    the C library has no such setting (musl). Returns whether they do."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "MALLOC_ARENA_MAX" in os.environ:
        return False
    return bool(mallopt(_M_ARENA_MAX, HEAPS))
