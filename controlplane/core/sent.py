"""What was sent, and when: by node, since all that was said on a node's old stream may never have arrived."""

from __future__ import annotations

import math

Key = tuple[str, ...]
"""(kind, node, whatever else tells one order from another)."""

ROOM = 16
"""So many entries of one node are kept before old ones are looked for."""


class Sent:
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
        here = self._by_node.setdefault(key[1], {})
        if len(here) >= ROOM:
            for old in [each for each, at in here.items() if at < stale]:
                del here[old]
        here[key] = now

    def drop(self, key: Key) -> None:
        """As if it had not been sent."""
        self._by_node.get(key[1], {}).pop(key, None)

    def forget(self, node: str) -> None:
        """As if nothing had been sent to this node."""
        self._by_node.pop(node, None)
