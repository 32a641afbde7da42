"""Read what another process has cost, from /proc/PID/stat (Linux; the fields are those of proc(5))."""

from __future__ import annotations

import os
import resource

from holdfast import pids

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _RSS = 11, 12, 21  # fields 14, 15 and 24, counted behind the command's name


def cpu_s(pid: int) -> float:
    """CPU seconds that the process has used, all threads together."""
    found = pids.fields(pid)
    return (int(found[_UTIME]) + int(found[_STIME])) / _TICKS


def memory_bytes(pid: int) -> int:
    """Its resident memory."""
    return int(pids.fields(pid)[_RSS]) * resource.getpagesize()
