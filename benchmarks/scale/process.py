"""Read what another process has cost, from /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields 14 and 15 of proc(5), counted behind the command's name


def cpu_s(pid: int) -> float:
    """CPU seconds that the process has used, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS


def memory_bytes(pid: int) -> int:
    """Its resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"/proc/{pid}/status names no VmRSS")
