"""Count the kills for want of memory in the cgroups of the ranks, by what the kernel counts.

The counter `oom_kill` (memory.events of cgroup v2, memory.oom_control of v1) grows with each process of the
cgroup that the kernel kills, whether the cgroup's own limit was reached or the machine's memory was used up.
A process that is gone has no cgroup any more, so the counters are read while the ranks live, and compared
when one has ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""cgroup v1 writes no limit as a number near 2^63."""
LOOKS_KEPT = 4
"""Looks that are compared with when a process has ended: kills within the last few of them are of its end.
Older ones may have been of another process, such as a loader's worker, which the rank outlived."""


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """The memory cgroup of a process. `unified`: of cgroup v2."""

    folder: Path
    unified: bool

    def kills(self) -> int | None:
        """How many of its processes the kernel has killed for want of memory; None when that cannot be
        read."""
        name = "memory.events" if self.unified else "memory.oom_control"
        for line in _read(self.folder / name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdecimal():
                return int(value)
        return None

    def limit_bytes(self) -> int:
        """Its limit; 0 when it has none of its own, or that cannot be read."""
        text = _read(self.folder / ("memory.max" if self.unified else "memory.limit_in_bytes")).strip()
        return int(text) if text.isdecimal() and int(text) < _UNLIMITED else 0


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """What is known of one process. `kills`: lately in its cgroup, None when that is not known."""

    kills: int | None = None
    limit_bytes: int = 0
    cgroup: str = ""


class MemoryKillCounter:
    """The counters of the cgroups of some processes, as they were at the last looks."""

    def __init__(self, proc: Path = Path("/proc"), root: Path = ROOT) -> None:
        self._proc, self._root = proc, root
        self._of: dict[int, MemoryCgroup] = {}
        self._seen: dict[MemoryCgroup, deque[int]] = {}

    def look(self, pids: list[int]) -> None:
        """Read the counters of these living processes; those of others are kept for a look at their end."""
        for pid in pids:
            found = cgroup_of(pid, self._proc, self._root)
            if found is not None:
                self._of[pid] = found
        used = dict.fromkeys(self._of.values())
        for each in used:
            kills = each.kills()
            if kills is not None:
                self._seen.setdefault(each, deque(maxlen=LOOKS_KEPT)).append(kills)
        for gone in [each for each in self._seen if each not in used]:
            del self._seen[gone]

    def at_end(self, pid: int) -> MemoryKills:
        """What is known of a process that has just ended. It is forgotten."""
        found = self._of.pop(pid, None)
        if found is None:
            return MemoryKills()
        before, now = self._seen.get(found), found.kills()
        if not before or now is None:
            return MemoryKills(cgroup=str(found.folder))
        return MemoryKills(max(0, now - before[0]), found.limit_bytes(), str(found.folder))


def cgroup_of(pid: int, proc: Path = Path("/proc"), root: Path = ROOT) -> MemoryCgroup | None:
    """The memory cgroup of a process; None when it is gone, or its cgroup cannot be seen from here."""
    for line in _read(proc / str(pid) / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):
            continue  # outside of what this container sees
        if "memory" in controllers.split(","):
            folder = root / "memory" / path.lstrip("/")
            return MemoryCgroup(folder, unified=False) if folder.is_dir() else None
        if not controllers and (root / "cgroup.controllers").exists():
            folder = root / path.lstrip("/")
            return MemoryCgroup(folder, unified=True) if folder.is_dir() else None
    return None


def _read(path: Path) -> str:
    """The text of a file of the kernel; "" when it is gone, or not for us: then nothing is known."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
