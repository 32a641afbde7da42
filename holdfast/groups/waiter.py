"""Run in another thread what the present one must not do: wait in torch, or release a process group.

A group that is released waits for its operations, in the thread that releases it. One of gloo's own threads
would wait for itself there, which ends the process."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """A thread that waits in torch, so that another thread need not."""

    idle: ClassVar[deque[Waiter]] = deque()

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="holdfast-wait", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._jobs.get()()
            self.idle.append(self)

    @classmethod
    def begin(cls, job: Callable[[], None]) -> None:
        """Run this job in a waiter that is idle, or in a new one."""
        try:
            waiter = cls.idle.pop()
        except IndexError:
            waiter = cls()
        waiter._jobs.put(job)
