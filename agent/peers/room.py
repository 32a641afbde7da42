"""Check how much memory a copy may take: a file system in memory may promise more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ipc.memory_left import CGROUP, available_bytes
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from pathlib import Path


def check_memory(target: Path, needed: int, cgroup: Path = CGROUP) -> None:
    """Raise ArenaError, with what to do, when this machine or container has fewer than `needed` bytes to
    spare."""
    available = available_bytes(cgroup)
    if available < needed:
        raise ArenaError(
            f"no arena of {needed} bytes at {target}: {available} bytes of memory are available; give this "
            "node more memory, or copy less to it (fewer --replicas)"
        )
