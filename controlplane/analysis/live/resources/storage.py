"""Remember how fast each node of a job wrote to its storage and read from it.

Checkpoints come seldom and differ in size, so traffic is added up until a portion is large enough to say how
fast it was; the newest portions of each node count. A node's traffic is that of its only storage: agents
report nothing where they use several, whose speeds may differ."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from controlplane.analysis.live import policy

if TYPE_CHECKING:
    from collections.abc import Iterable

WRITE, READ = "write", "read"


class NodeStorage(NamedTuple):
    """What one node moved in a window: bytes, and the time in which at least one transfer ran (s)."""

    node: str
    bytes_written: float
    write_s: float
    bytes_read: float
    read_s: float


class _Portion(NamedTuple):
    ended_s: float
    bytes: float
    busy_s: float


class StorageSpeed(NamedTuple):
    """How fast one node was over its newest portions."""

    bytes_per_s: float
    bytes: float
    busy_s: float


@dataclass(slots=True)
class _Traffic:
    """One direction of one node."""

    bytes: float = 0.0  # of the portion that is not complete yet
    busy_s: float = 0.0
    portions: deque[_Portion] = field(default_factory=lambda: deque(maxlen=policy.STORAGE_PORTIONS))


class StorageMemory:
    """The traffic of all nodes of one generation. Its size does not grow with time."""

    def __init__(self) -> None:
        self._traffic: dict[tuple[str, str], _Traffic] = {}
        self._best: dict[str, float] = {}

    def add(self, now_s: float, nodes: Iterable[NodeStorage]) -> None:
        """Take in a window. What cannot be (negative, not finite, bytes without time) is left out."""
        for each in nodes:
            for way, nbytes, busy_s in (
                (WRITE, each.bytes_written, each.write_s),
                (READ, each.bytes_read, each.read_s),
            ):
                if not (isfinite(nbytes) and isfinite(busy_s) and nbytes >= 0.0 and busy_s > 0.0):
                    continue
                mine = self._traffic.setdefault((way, each.node), _Traffic())
                mine.bytes, mine.busy_s = mine.bytes + nbytes, mine.busy_s + busy_s
                if mine.bytes >= policy.STORAGE_PORTION_BYTES:
                    mine.portions.append(_Portion(now_s, mine.bytes, mine.busy_s))
                    mine.bytes = mine.busy_s = 0.0

    def speeds(self, way: str, now_s: float) -> dict[str, StorageSpeed]:
        """The speed of each node with enough traffic lately, by name in order."""
        found = {}
        for (of, node), traffic in sorted(self._traffic.items()):
            fresh = [each for each in traffic.portions if now_s - each.ended_s <= policy.STORAGE_STALE_S]
            if of == way and len(fresh) >= policy.STORAGE_PORTIONS_LEAST:
                nbytes, busy_s = sum(each.bytes for each in fresh), sum(each.busy_s for each in fresh)
                found[node] = StorageSpeed(nbytes / busy_s, nbytes, busy_s)
        return found

    def best(self, way: str, typical: float) -> float:
        """The highest typical speed so far, this one included: what the storage can do."""
        self._best[way] = max(typical, self._best.get(way, 0.0))
        return self._best[way]
