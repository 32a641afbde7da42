"""Tell which process a pid means: its number is reused, in other boots, in other containers, by others."""

from __future__ import annotations

import os
from pathlib import Path


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, and so on; none without such a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def born(pid: int) -> int:
    """When a running process started, in clock ticks since boot; 0 without one. Tells a reused pid apart."""
    found = fields(pid)
    return int(found[19]) if found and found[0] not in "ZX" else 0


def space() -> str:
    """The space in which pids mean the same: this boot of this machine, and this process's pid namespace; ""
    when that cannot be known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
