"""Check how much memory a copy may take: a file system in memory may promise more than there is."""

from __future__ import annotations

from pathlib import Path

from holdfast.ipc.shm import ArenaError

_CGROUP = Path("/sys/fs/cgroup")


def check_memory(target: Path, needed: int, cgroup: Path = _CGROUP) -> None:
    """Raise ArenaError, with what to do, when this machine or container has fewer than `needed` bytes to
    spare."""
    available = available_bytes(cgroup)
    if available < needed:
        raise ArenaError(
            f"no arena of {needed} bytes at {target}: {available} bytes of memory are available; give this "
            "node more memory, or copy less to it (fewer --replicas)"
        )


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """How many bytes can be had without swapping: of the machine, and of the container if it has a limit.

    A container's page cache (active_file, inactive_file) counts as available: the kernel drops it when memory
    runs out."""
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
