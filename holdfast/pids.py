"""Tell processes apart by more than their pid: pids are reused, and differ between containers."""

from __future__ import annotations

import os
from pathlib import Path


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name (state, parent, ...); [] if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def born(pid: int) -> int:
    """When a running process started, in clock ticks since boot; 0 if there is none, or only a zombie.

    Together with the pid it identifies a process, for a later process with the same pid has another start."""
    found = fields(pid)
    return int(found[19]) if found and found[0] not in "ZX" else 0


def space() -> str:
    """Identify where a pid has one meaning: this boot of this machine and this process's pid namespace.

    "" if that cannot be read."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
