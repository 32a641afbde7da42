"""Count how much of the CPU time that this process wanted others had, so that it is not taken for slowness.

Linux counts for each thread how long it ran and how long it was ready and did not run
(/proc/PID/task/TID/schedstat). Waiting for the limit of its own cgroup counts as waiting too, but that is a
property of the node as it is given to ranks: cpu.stat says how much it is, and it is taken out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class CpuShare:
    """What this process had of the CPUs so far (s): it ran, it waited, and so much of that for its limit."""

    ran_s: float
    waited_s: float
    limited_s: float

    def crowded(self, before: CpuShare) -> float:
        """The share of the CPU time wanted since then that other processes had; 0 if nothing is known."""
        ran_s, waited_s = self.ran_s - before.ran_s, self.waited_s - before.waited_s
        others_s = max(0.0, waited_s - (self.limited_s - before.limited_s))
        return others_s / (ran_s + waited_s) if ran_s + waited_s > 0.0 else 0.0


def now() -> CpuShare:
    """The counts of all living threads of this process."""
    rows = [_numbers(path) for path in Path("/proc/self/task").glob("*/schedstat")]
    ran_ns, waited_ns = (sum(row[at] for row in rows if len(row) > at) for at in (0, 1))
    return CpuShare(ran_ns / 1e9, waited_ns / 1e9, _limited_s())


def _numbers(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []  # the thread has ended, or this kernel does not count


def _limited_s() -> float:
    """How long the cgroup of this process has waited for its CPU limit (s), 0 where there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0.0
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "cpu" in controllers.split(","):
            return _count(ROOT / "cpu" / path.lstrip("/") / "cpu.stat", "throttled_time", 1e9)
        if not controllers and (ROOT / "cgroup.controllers").exists():
            return _count(ROOT / path.lstrip("/") / "cpu.stat", "throttled_usec", 1e6)
    return 0.0


def _count(path: Path, name: str, per_s: float) -> float:
    try:
        rows = dict(line.split(None, 1) for line in path.read_text().splitlines())
        return int(rows.get(name, 0)) / per_s
    except (OSError, ValueError):
        return 0.0
