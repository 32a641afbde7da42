"""Read how much memory this process uses: of its GPU, or resident memory without one."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

EVERY_NS = 1_000_000_000
"""Memory is read once a second: reading it takes about 20 us."""
_STATM = Path("/proc/self/statm")


def used() -> tuple[int, int]:
    """Bytes in use now, and the most so far; (0, 0) where the system does not tell.

    On a GPU these are what torch's allocator has given to tensors on the current device
    (`torch.cuda.memory_allocated`). Otherwise they are the resident memory of the process, with what it
    shares."""
    on_device = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    if on_device:
        return on_device, torch.cuda.max_memory_allocated()
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return 0, 0
    return pages * resource.getpagesize(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
