"""Read what a node has left for its ranks, as evidence about a barrier that is late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.core.records.diagnosis import NodeResources
from holdfast.ipc.memory_left import available_bytes

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import NodeDisks

PRESSURE = Path("/proc/pressure/cpu")


def read(disks: NodeDisks | None, pressure: Path = PRESSURE) -> NodeResources:
    """What is left now. `disks`: the newest reading of the file systems; None: there is none."""
    path, free_bytes = _fullest(disks)
    return NodeResources(_memory_bytes(), _cpu_waiting(pressure), path, free_bytes)


def _memory_bytes() -> int:
    try:
        return available_bytes()
    except (OSError, KeyError, ValueError):
        return 0


def _cpu_waiting(pressure: Path) -> float:
    """The share of the last 10 s in which some task waited for a CPU (Documentation/accounting/psi.rst); -1
    where the kernel does not count it."""
    try:
        words = dict(word.split("=") for word in pressure.read_text().splitlines()[0].split()[1:])
        return min(1.0, max(0.0, float(words["avg10"]) / 100.0))
    except (OSError, LookupError, ValueError):
        return -1.0


def _fullest(disks: NodeDisks | None) -> tuple[str, int]:
    """The folder on the file system with the smallest free share, and its free bytes."""
    if disks is None or not disks.paths:
        return "", 0
    rows = zip(disks.paths, disks.free_bytes, disks.total_bytes, strict=True)
    path, free_bytes, _ = min(rows, key=lambda row: row[1] / max(row[2], 1))
    return path, free_bytes
