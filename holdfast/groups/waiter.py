"""Do in a Python thread what must not be done in the thread at hand: to wait in torch, to let go of a group.

A group that goes waits for its operations, in the thread that lets go of it: one of gloo's own would wait for
itself, which ends the process."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """A thread that waits in torch, so that another one need not."""

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
        """Run this in a thread that has nothing else to do."""
        try:
            waiter = cls.idle.pop()
        except IndexError:
            waiter = cls()
        waiter._jobs.put(job)
