"""Remember which orders were sent to which node, and when.

The log is kept by node: when a node's stream breaks, orders sent on it may never have arrived, and
`forget` makes all of them be sent again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, ...]
"""(kind, node, whatever else tells this order from others)."""

ROOM = 16
"""A node's entries are kept without a search for old ones up to this number."""


class DeliveryLog:
    """When (s) each order was sent, by its key."""

    __slots__ = ("_by_node",)

    def __init__(self) -> None:
        self._by_node: dict[str, dict[Key, float]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._by_node.get(key[1], ())

    def __len__(self) -> int:
        return sum(map(len, self._by_node.values()))

    def at(self, key: Key) -> float:
        """When (s) it was sent; minus infinity when it was not."""
        here = self._by_node.get(key[1])
        return -math.inf if here is None else here.get(key, -math.inf)

    def put(self, key: Key, now: float, stale: float = -math.inf) -> None:
        """Record that it is sent now.

        Entries from before `stale` (s) may be dropped: a repeated order of that age would be sent in any
        case, so nothing is lost by it."""
        self._put(self._by_node.setdefault(key[1], {}), key, now, stale)

    @staticmethod
    def _put(here: dict[Key, float], key: Key, now: float, stale: float) -> None:
        if len(here) >= ROOM:
            for old in [each for each, at in here.items() if at < stale]:
                del here[old]
        here[key] = now

    def renew(
        self, what: tuple[str, str], nodes: Iterable[str], now: float, every_s: float, stale: float
    ) -> tuple[list[str], float]:
        """Record one order, (kind, argument), as sent to those of `nodes` where it is due: not sent for
        `every_s`.

        Return these nodes, and the earliest time (s) at which any of the nodes was sent it: the next
        repetition is `every_s` later. `stale`: as for `put`."""
        (kind, argument), sent, first = what, [], math.inf
        for node in nodes:
            here = self._by_node.get(node)
            if here is None:
                here = self._by_node[node] = {}
            key = (kind, node, argument)
            at = here.get(key, -math.inf)
            if now >= at + every_s:
                at = now
                self._put(here, key, now, stale)
                sent.append(node)
            if at < first:  # noqa: PLR1730 - ten thousand times in a decision
                first = at
        return sent, first

    def drop(self, key: Key) -> None:
        """Forget that this order was sent."""
        self._by_node.get(key[1], {}).pop(key, None)

    def forget(self, node: str) -> None:
        """Forget everything that was sent to this node."""
        self._by_node.pop(node, None)
