"""What was sent, and when: by node, since all that was said on a node's old stream may never have arrived."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, ...]
"""(kind, node, whatever else tells one order from another)."""

ROOM = 16
"""So many entries of one node are kept before old ones are looked for."""


class DeliveryLog:
    """When (s) each order left, by its key."""

    __slots__ = ("_by_node",)

    def __init__(self) -> None:
        self._by_node: dict[str, dict[Key, float]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._by_node.get(key[1], ())

    def __len__(self) -> int:
        return sum(map(len, self._by_node.values()))

    def at(self, key: Key) -> float:
        """When it left; minus infinity when it did not."""
        here = self._by_node.get(key[1])
        return -math.inf if here is None else here.get(key, -math.inf)

    def put(self, key: Key, now: float, stale: float = -math.inf) -> None:
        """It leaves now. What left before `stale` (s) would be sent again anyhow: it may be forgotten."""
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
        """Of many nodes that are told the same (kind, word): those to be told it now, again or for the first
        time; and when (s) the one was told whose turn is next."""
        (kind, word), told, first = what, [], math.inf
        for node in nodes:
            here = self._by_node.get(node)
            if here is None:
                here = self._by_node[node] = {}
            key = (kind, node, word)
            at = here.get(key, -math.inf)
            if now >= at + every_s:
                at = now
                self._put(here, key, now, stale)
                told.append(node)
            if at < first:  # noqa: PLR1730 - ten thousand times in a decision
                first = at
        return told, first

    def drop(self, key: Key) -> None:
        """As if it had not been sent."""
        self._by_node.get(key[1], {}).pop(key, None)

    def forget(self, node: str) -> None:
        """As if nothing had been sent to this node."""
        self._by_node.pop(node, None)
