"""Keep named deadlines in heaps, one heap per kind.

Setting a deadline is one push. A deadline that is replaced or cleared leaves its old heap entry behind; an
entry whose time is not the one in `_at` is stale, and is skipped when it comes to the top."""

from __future__ import annotations

import heapq
import math

Key = tuple[str, str]
"""What a deadline is for: its kind (such as job, node, queue) and a name."""

Entry = tuple[float, int, Key]
"""(time in s, sequence number, key). The number orders entries of equal time by when they were set."""


class Deadlines:
    """Named points in time (s), one per key: the earliest time asked for holds until it is due or cleared."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}  # the deadlines that hold
        self._heaps: dict[str, list[Entry]] = {}  # by kind; with stale entries
        self._pushed = 0
        self._none_before = math.inf  # no deadline is earlier (s): `due` returns at once before it

    def sooner(self, key: Key, at: float) -> None:
        """Set the deadline of `key` to `at`, unless it is earlier already."""
        if at < self._at.get(key, math.inf):
            self._at[key] = at
            self._pushed += 1
            if at < self._none_before:  # noqa: PLR1730 - for every order of a job
                self._none_before = at
            heapq.heappush(self._heaps.setdefault(key[0], []), (at, self._pushed, key))

    def clear(self, key: Key) -> None:
        """Remove the deadline of `key`, if there is one."""
        self._at.pop(key, None)

    def next(self) -> float:
        """The earliest deadline; infinity when there is none."""
        return self.next_but("")

    def next_but(self, kind: str) -> float:
        """The earliest deadline of all kinds but `kind`; infinity when there is none."""
        soonest = math.inf
        for name, heap in self._heaps.items():
            if name != kind and (first := self._first(heap)) is not None and first[0] < soonest:
                soonest = first[0]
        return soonest

    def _first(self, heap: list[Entry]) -> Entry | None:
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def due(self, now: float) -> list[Key]:
        """Remove and return the keys whose time has come, earliest first."""
        if now < self._none_before:
            return []
        found: list[Entry] = []
        for heap in self._heaps.values():
            while (first := self._first(heap)) is not None and first[0] <= now:
                found.append(heapq.heappop(heap))
                del self._at[first[2]]
        self._none_before = self.next()
        found.sort()
        return [key for _, _, key in found]
