"""Keep what the nodes of one job have measured on their links, and give it as a matrix.

A probe counts only where both of its ends were calm (`calm.py`). Other disturbances, as a burst of the job
itself, make a link look slower, never faster: of several measurements of one direction the best one counts.
What was measured before a suspicion is a reference, and does not count as a measurement of now."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from controlplane.analysis.links import calm, policy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from controlplane.analysis.links.unknown import Doubt
    from controlplane.core.records.diagnosis import LinkProbe

Way = tuple[str, str]
"""A direction of a link: from the first node to the second. Both are the same: the node alone."""


class Measured(NamedTuple):
    """The best of what was measured on one way."""

    bytes_per_s: float
    rtt_s: float
    times: int
    occupied: float = 0.0  # share of the time of the best one in which an agent ran or waited for a CPU


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """What is known of the links of one job. Ways that were not measured are missing."""

    nodes: tuple[str, ...]
    ways: Mapping[Way, Measured]  # those from a node to itself, too
    before: Mapping[Way, Measured] = field(default_factory=dict)  # the same, of before the suspicion
    domains: Mapping[str, str] = field(default_factory=dict)  # fault domain of each node; missing: its own
    silent: Mapping[Way, Doubt] = field(default_factory=dict)  # why a way has no newest measurement


class _Row(NamedTuple):
    at_s: float
    bytes_per_s: float
    rtt_s: float
    occupied: float


class LinkMeasures:
    """The measurements of one job. Its size does not grow with time."""

    def __init__(self) -> None:
        self._rows: dict[Way, deque[_Row]] = {}
        self._before: dict[Way, _Row] = {}
        self._silent: dict[Way, Doubt] = {}

    def take(self, node: str, at_s: float, probes: Iterable[LinkProbe], *, suspected: bool) -> None:
        """Take in what a node measured. `suspected`: whether the links were under suspicion then."""
        for probe in probes:
            way = node, probe.node
            if reason := calm.doubt(node, probe):
                self._silent[way] = reason
                continue
            row = _Row(at_s, probe.bytes_per_s, probe.rtt_s, calm.occupied(probe))
            self._silent.pop(way, None)
            if not suspected:
                best = self._before.get(way)
                self._before[way] = row if best is None else max(best, row, key=_speed)
                continue
            self._rows.setdefault(way, deque(maxlen=policy.KEPT)).append(row)

    def forget_suspicion(self) -> None:
        """Drop what was measured under a suspicion that is over."""
        self._rows.clear()
        self._silent.clear()

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Drop the ways of all nodes but these."""
        for memory in (self._rows, self._before, self._silent):
            for way in [way for way in memory if not (way[0] in nodes and way[1] in nodes)]:
                del memory[way]

    def matrix(self, now_s: float, nodes: Iterable[str], domains: Mapping[str, str]) -> LinkMatrix:
        """What is known now of the links between these nodes. Stale measurements are left out."""
        known = tuple(sorted(nodes))
        ways = {}
        for way in sorted(self._rows):
            fresh = [row for row in self._rows[way] if 0.0 <= now_s - row.at_s <= policy.STALE_S]
            if fresh and way[0] in known and way[1] in known:
                best, rtt_s = max(fresh, key=_speed), min(row.rtt_s for row in fresh)
                ways[way] = Measured(best.bytes_per_s, rtt_s, len(fresh), best.occupied)
        before = {way: Measured(row.bytes_per_s, row.rtt_s, 1) for way, row in sorted(self._before.items())}
        return LinkMatrix(known, ways, before, dict(domains), dict(sorted(self._silent.items())))


def _speed(row: _Row) -> float:
    return row.bytes_per_s
