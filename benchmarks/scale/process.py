"""Read what another process has cost, from /proc/PID/stat (Linux; the fields are those of proc(5))."""

from __future__ import annotations

import os
import resource

from holdfast import pids

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _CHILDREN_UTIME, _CHILDREN_STIME, _RSS = 11, 12, 13, 14, 21
"""Fields 14 to 17 and 24, counted behind the command's name."""


def cpu_s(pid: int, *, children: bool = False) -> float:
    """CPU seconds that the process has used, all threads together. `children`: also those that have ended."""
    fields = (_UTIME, _STIME, _CHILDREN_UTIME, _CHILDREN_STIME) if children else (_UTIME, _STIME)
    found = pids.fields(pid)
    return sum(int(found[each]) for each in fields) / _TICKS


def memory_bytes(pid: int) -> int:
    """Its resident memory."""
    return int(pids.fields(pid)[_RSS]) * resource.getpagesize()
