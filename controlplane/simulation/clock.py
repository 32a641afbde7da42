"""Virtual time: a heap of things to do. Nothing here waits; a day passes in seconds."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Virtual seconds, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Have `do` called at `when` (s), at once if that is past; equal times keep their order."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, do))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Have `do` called in `delay_s`."""
        self.at(self.now + delay_s, do)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until `until` (s), or until `done` says so."""
        while self._heap and self._heap[0][0] <= until and not done():
            self.now, _, do = heapq.heappop(self._heap)
            do()
        if not done():
            self.now = max(self.now, until)
