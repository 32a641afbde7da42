"""Count how long this process has run on a CPU, and how long it waited for one, over all of its threads.

`CpuClock` adds up what the kernel counts for each thread (/proc/self/task/TID/schedstat), so that its sums
never go back: a thread that has ended keeps its share. Beside these stands how long any process of the node
waited for a CPU (/proc/pressure/cpu), where the kernel counts that."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

TASKS, PRESSURE = Path("/proc/self/task"), Path("/proc/pressure/cpu")
THREADS_MAX = 256
"""With more threads nothing is counted: a look at each takes some 50 us, and the event loop waits."""


@dataclass(frozen=True, slots=True)
class CpuLook:
    """The sums until one moment (s). `pressed_s`: how long some process of the node waited for a CPU, in the
    mean of its CPUs; None: not known."""

    at_s: float  # on the monotonic clock
    ran_s: float
    waited_s: float
    pressed_s: float | None


class CpuClock:
    """The sums of this process. Each object has its own beginning; only differences mean something.

    `tasks`: a folder with one folder for each thread, in which the kernel counts."""

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._threads: dict[str, tuple[int, int]] = {}
        self._ran_ns = self._waited_ns = 0

    def look(self) -> CpuLook | None:
        """The sums until now; None where the kernel does not count, or there are too many threads."""
        try:
            names = [each.name for each in self._tasks.iterdir()]
        except OSError:
            return None
        if len(names) > THREADS_MAX:
            return None
        now = {name: found for name in names if (found := _thread(self._tasks / name)) is not None}
        if not any(ran for ran, _ in now.values()):
            return None
        for name, (ran, waited) in now.items():
            ran_before, waited_before = self._threads.get(name, (0, 0))
            if ran < ran_before or waited < waited_before:  # a new thread with an old number
                ran_before = waited_before = 0
            self._ran_ns += ran - ran_before
            self._waited_ns += waited - waited_before
        self._threads = now
        return CpuLook(time.monotonic(), self._ran_ns / 1e9, self._waited_ns / 1e9, _pressed_s())


def _thread(folder: Path) -> tuple[int, int] | None:
    """How long a thread has run and waited (ns); None: it has ended, or the kernel does not count."""
    try:
        ran, waited, _ = (folder / "schedstat").read_text().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


def _pressed_s() -> float | None:
    """The total of the line "some" (s)."""
    try:
        some = next(line for line in PRESSURE.read_text().splitlines() if line.startswith("some "))
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, StopIteration):
        return None  # this kernel does not count pressure
