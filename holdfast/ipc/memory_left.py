"""Tell how much memory this process could still get from its machine or container. Standard library only."""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def available_bytes(cgroup: Path = CGROUP) -> int:
    """How many bytes can be had without swapping: of the machine, and of the container if it has a limit.

    A container's page cache (active_file, inactive_file) counts as available: the kernel drops it when memory
    runs out. Raises OSError or KeyError where the kernel does not tell."""
    machine = _table(Path("/proc/meminfo"))["MemAvailable:"] << 10
    limit = cgroup / "memory.max"
    if not limit.exists() or limit.read_text().strip() == "max":
        return machine
    stat = _table(cgroup / "memory.stat")
    used = int((cgroup / "memory.current").read_text()) - stat["active_file"] - stat["inactive_file"]
    return max(0, min(machine, int(limit.read_text()) - used))


def _table(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}
