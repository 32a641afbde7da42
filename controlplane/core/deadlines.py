"""Deadlines in a lazy heap: setting one costs a push, a changed one leaves a stale entry that is skipped."""

from __future__ import annotations

import heapq
import math

Key = tuple[str, str]
"""What a deadline is for: a kind (job, node, lane) and a name."""


class Deadlines:
    """Named points in time (s). One per key; the earliest wish wins until it is due or cleared."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def sooner(self, key: Key, at: float) -> None:
        """Be woken for `key` at `at`, unless an earlier time is set already."""
        if at < self._at.get(key, math.inf):
            self._at[key] = at
            self._pushed += 1
            heapq.heappush(self._heap, (at, self._pushed, key))

    def clear(self, key: Key) -> None:
        """Forget the deadline of `key`, if there is one."""
        self._at.pop(key, None)

    def next(self) -> float:
        """The earliest deadline; infinity when there is none."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> list[Key]:
        """The keys whose time has come, earliest first. They are cleared."""
        keys = []
        while self.next() <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            keys.append(key)
        return keys
