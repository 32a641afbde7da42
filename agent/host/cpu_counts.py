"""Read what the kernel counts of a process's CPU time: how long it ran, how long it waited for a CPU.

`/proc/PID/task/TID/schedstat` says for each thread how long it has run, and how long it was ready to and did
not, because others ran or because its cgroup had used up its quota. A thread that is stopped, sleeps, or
waits for a device does neither. `cpu.stat` of the cgroups of the process says how long a quota has held their
processes up. Both versions of cgroups are read; the limits of all enclosing cgroups count, as far as they can
be seen from here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import pids

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
THREADS_MAX = 64
"""Threads of a process that are read, the oldest: reading one takes some 30 us, and the agent waits."""
COMPUTES_RATIO = 0.5
"""A thread computes beside the main thread when it has run for this share of the main thread's time."""
LEVELS_MAX = 16
"""Enclosing cgroups that are read, at most."""
NO_LIMIT, UNKNOWN = 0.0, -1.0


@dataclass(frozen=True, slots=True)
class CpuCounts:
    """What the kernel has counted for one process until now. Durations in s."""

    born: int  # when it started: another process with the same pid has another number
    at_s: float  # on the monotonic clock
    main: int  # id of its main thread
    threads: dict[int, tuple[float, float]]  # by thread id: how long it ran, how long it waited for a CPU
    throttled_s: float  # how long a quota has held up its cgroup, which others may be in too
    cpu_limit: float  # how many CPUs its cgroup may use; NO_LIMIT; UNKNOWN: neither is known


@dataclass(frozen=True, slots=True)
class CpuSpent:
    """What was counted between two looks. `watched_s` 0: nothing is known."""

    watched_s: float = 0.0
    ran_s: float = 0.0  # of the main thread
    queued_s: float = 0.0  # of the computing thread that waited longest for a CPU
    throttled_s: float = 0.0
    cpu_limit: float = UNKNOWN


NOTHING = CpuSpent()


def read(pid: int) -> CpuCounts | None:
    """What is counted for a process until now; None if there is none, or the kernel does not count.

    `pid`: as seen from here."""
    born = pids.born(pid) if pid > 0 else 0
    if not born:
        return None
    try:
        names = sorted(int(each.name) for each in (PROC / str(pid) / "task").iterdir())
    except OSError:
        return None
    threads = {name: found for name in names[:THREADS_MAX] if (found := _thread(pid, name)) is not None}
    if pid not in threads:
        return None
    throttled_s, cpu_limit = _quota(pid)
    return CpuCounts(born, time.monotonic(), pid, threads, throttled_s, cpu_limit)


def between(before: CpuCounts | None, now: CpuCounts | None) -> CpuSpent:
    """What was counted between two looks at one process; NOTHING where that is not known."""
    if before is None or now is None or before.born != now.born or now.main not in before.threads:
        return NOTHING
    spent = {
        name: (ran - before.threads[name][0], queued - before.threads[name][1])
        for name, (ran, queued) in now.threads.items()
        if name in before.threads
    }
    watched_s, throttled_s = now.at_s - before.at_s, now.throttled_s - before.throttled_s
    if watched_s <= 0.0 or min(map(min, spent.values())) < 0.0:
        return NOTHING
    ran_s = spent[now.main][0]
    queued_s = max(queued for ran, queued in spent.values() if ran >= COMPUTES_RATIO * ran_s)
    known = now.cpu_limit if before.cpu_limit != UNKNOWN and throttled_s >= 0.0 else UNKNOWN
    return CpuSpent(watched_s, ran_s, queued_s, max(0.0, throttled_s), known)


def _thread(pid: int, thread: int) -> tuple[float, float] | None:
    """How long a thread has run, and waited for a CPU (s); None: it is gone, or the kernel does not count."""
    try:
        ran, queued, _ = (PROC / str(pid) / "task" / str(thread) / "schedstat").read_text().split()
        return int(ran) / 1e9, int(queued) / 1e9
    except (OSError, ValueError):
        return None


def _quota(pid: int) -> tuple[float, float]:
    """How long quotas have held up the process's cgroups (s), and the lowest limit, in CPUs."""
    throttled_s, limit, seen = 0.0, NO_LIMIT, False
    for folder in _cgroups(pid):
        stat = _words(folder / "cpu.stat")
        if stat is None:
            continue
        seen = True
        throttled_s += stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
        here = _limit(folder)
        limit = min(limit, here) if limit and here else limit or here
    return throttled_s, limit if seen else UNKNOWN


def _cgroups(pid: int) -> Iterator[Path]:
    """The folders of the cgroups that bound the CPU time of a process, the innermost first.

    In another container the names in /proc/PID/cgroup mean nothing here: then its own view is used."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base, own = CGROUPS / controllers, PROC / str(pid) / "root/sys/fs/cgroup"
        inner = base / name.lstrip("/")
        if ".." in name or not (inner / "cpu.stat").exists():
            base = inner = own / controllers
        yield from [each for each in (inner, *inner.parents) if each.is_relative_to(base)][:LEVELS_MAX]


def _words(path: Path) -> dict[str, int] | None:
    """The numbers of a file with a name and a number on each line; None if it cannot be read."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _limit(folder: Path) -> float:
    """How many CPUs this cgroup may use; NO_LIMIT."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return int(quota) / int(period) if int(quota) > 0 else NO_LIMIT
    except (OSError, ValueError, ZeroDivisionError):
        return NO_LIMIT  # "max", or the outermost cgroup, which has no limit
