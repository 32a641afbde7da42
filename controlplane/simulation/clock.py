"""Keep virtual time as a heap of scheduled calls: nothing waits, and a day passes in seconds."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class VirtualClock:
    """Virtual time `now` (s), and the calls scheduled for later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Schedule `do` at `when` (s), or now if that is past; calls of equal time keep their order."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, do))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Schedule `do` after `delay_s`."""
        self.at(self.now + delay_s, do)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run the scheduled calls, and advance time, until `until` (s) or until `done()` is true."""
        while self._heap and self._heap[0][0] <= until and not done():
            self.now, _, do = heapq.heappop(self._heap)
            do()
        if not done():
            self.now = max(self.now, until)
