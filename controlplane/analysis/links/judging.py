"""Say from a matrix of probes whether a link, a node's network or the whole network is slow.

Links are compared with the typical link of their class: links within a fault domain, and links between fault
domains, since racks are often joined by less. A node of which most links are slow is named instead of them.
Where everything is alike nobody is named, unless all links carry less than they did before the suspicion.

Only measurements between calm nodes come in (`measures.py`). A node that is slow in sending to itself, or
of which that is not known, is not judged, nor is a link with too few others of its class. One that does not
answer, or whose peers do not, has no measurements: what is not known speaks against nobody."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.links import policy
from controlplane.analysis.links.explaining import why
from controlplane.analysis.links.unknown import Unknown
from controlplane.analysis.robust import NORMAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controlplane.analysis.links.measures import LinkMatrix, Measured, Way

Pair = tuple[str, str]
"""A link: its two nodes, in order of their names."""


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """Something that is slow. `kind`: slow_link (two nodes), slow_node_network (one), slow_network (none).

    `ratio`: how many times as much a typical link carries (or, of `slow_network`, carried before); if
    `by_rtt`, how many times as long a round trip takes."""

    kind: str
    nodes: tuple[str, ...]
    ratio: float
    confidence: float
    bytes_per_s: float
    rtt_s: float
    slow: int  # links that are slow
    judged: int  # links that could be judged, of the node or of all
    by_rtt: bool = False
    one_way: Way | None = None  # it is slow in this direction only


@dataclass(frozen=True, slots=True)
class LinkJudgement:
    """All that probes show. `unknown`: why nothing is named, for people, and `code`, for programs."""

    verdicts: tuple[LinkVerdict, ...]
    judged: int  # links that were compared with others
    unknown: str  # "" when something is named
    code: Unknown


@dataclass(frozen=True, slots=True)
class _Link:
    """One link against a typical one of its class. Levels are logarithms; 0: typical."""

    pair: Pair
    level: float  # of the slower direction
    slow: bool
    by_rtt: bool
    one_way: Way | None
    worst: Measured


def judge(matrix: LinkMatrix) -> LinkJudgement:
    """Say what the matrix shows."""
    busy = _busy(matrix)
    groups = list(_classes(matrix, busy))
    occupied: dict[Way, float] = {}  # directions that look slow, and may be so because of an agent
    links = [link for group in groups for link in _against_typical(group, occupied)]
    slow = [link for link in links if link.slow]
    verdicts = [*_nodes(links, slow)]
    named = {each.nodes[0] for each in verdicts}
    left = [link for link in slow if not named.intersection(link.pair)]
    verdicts += _single(left, links)
    if not slow:
        verdicts += _all_alike(matrix, busy)
    if verdicts:
        return LinkJudgement(tuple(verdicts), len(links), "", Unknown.NONE)
    compared = _known(matrix, busy) if len(matrix.nodes) == 2 else [way for group in groups for way in group]
    code, text = why(matrix, busy, {way for way in compared if way not in occupied}, occupied)
    return LinkJudgement((), len(links), text, code)


def _pair(way: Way) -> Pair:
    return min(way), max(way)


def _known(matrix: LinkMatrix, busy: dict[str, float]) -> dict[Way, Measured]:
    """The ways between two nodes that can be judged."""
    return {
        way: found
        for way, found in matrix.ways.items()
        if way[0] != way[1]
        and found.times >= policy.MEASURES_LEAST
        and all(node not in busy and (node, node) in matrix.ways for node in way)
    }


def _busy(matrix: LinkMatrix) -> dict[str, float]:
    """The nodes that are slow in sending to themselves, and how many times slower than a typical one, or than
    they were before."""
    own = {node: matrix.ways[node, node].bytes_per_s for node in matrix.nodes if (node, node) in matrix.ways}
    if not own:
        return {}
    typical = _typical(list(own.values()))
    found = {}
    for node, speed in own.items():
        before = matrix.before.get((node, node))
        ratio = max(typical, before.bytes_per_s if before is not None else 0.0) / speed
        if ratio >= policy.BUSY_RATIO:
            found[node] = ratio
    return found


def _typical(values: list[float]) -> float:
    ascending = sorted(values)
    return ascending[math.ceil(policy.TYPICAL_QUANTILE * (len(ascending) - 1))]


def _classes(matrix: LinkMatrix, busy: dict[str, float]) -> Iterator[dict[Way, Measured]]:
    """The ways within fault domains, and those between: only classes of enough links."""
    known = _known(matrix, busy)

    def inside(way: Way) -> bool:
        first, second = (matrix.domains.get(node) or node for node in way)
        return first == second

    for within in (True, False):
        group = {way: found for way, found in known.items() if inside(way) is within}
        if len({_pair(way) for way in group}) >= policy.LINKS_LEAST:
            yield group


def _against_typical(group: Mapping[Way, Measured], occupied: dict[Way, float]) -> list[_Link]:
    """Each link of a class against the typical one. Fills in `occupied`, with the directions of those that
    are left out: they look slow, and an agent was occupied too long."""
    speed = math.log(_typical([each.bytes_per_s for each in group.values()]))
    apart = _scatter([math.log(each.bytes_per_s) for each in group.values()])
    needed = max(math.log(policy.SLOW_RATIO), policy.SPREADS * apart)
    rtt_s = -_typical([-each.rtt_s for each in group.values()])
    by_pair: dict[Pair, list[Way]] = {}
    for way in sorted(group):
        by_pair.setdefault(_pair(way), []).append(way)
    found = []
    for pair, ways in by_pair.items():
        levels = {way: speed - math.log(group[way].bytes_per_s) for way in ways}
        worst = max(ways, key=lambda way: levels[way])
        late_by_agent = {
            way: group[way].occupied
            for way in ways
            if levels[way] >= needed and group[way].occupied > policy.OCCUPIED_MAX
        }
        slow_ways = [way for way in ways if levels[way] >= needed and way not in late_by_agent]
        late = [way for way in ways if _late(group[way].rtt_s, rtt_s)]
        if late_by_agent and not slow_ways:
            occupied |= late_by_agent
            continue
        if late_by_agent:
            worst = max(slow_ways, key=lambda way: levels[way])
        one_way = worst if len(ways) == 2 and len(slow_ways) == 1 and not late_by_agent else None
        if slow_ways or not late:
            found.append(_Link(pair, levels[worst], bool(slow_ways), False, one_way, group[worst]))
        else:
            slowest = max((group[way] for way in late), key=lambda each: each.rtt_s)
            found.append(_Link(pair, math.log(slowest.rtt_s / rtt_s), True, True, None, slowest))
    return found


def _scatter(values: list[float]) -> float:
    """The standard deviation, from the shortest interval that holds half of the values: the other half may be
    slow. Of a normal distribution that interval is 2 / NORMAL standard deviations long."""
    ascending = np.sort(values)
    apart = len(ascending) // 2 - 1
    return float(0.5 * NORMAL * np.min(ascending[apart:] - ascending[: len(ascending) - apart]))


def _late(rtt_s: float, typical_s: float) -> bool:
    return rtt_s >= policy.SLOW_RTT_RATIO * typical_s and rtt_s - typical_s >= policy.SLOW_RTT_S


def _nodes(links: list[_Link], slow: list[_Link]) -> Iterator[LinkVerdict]:
    """The nodes of which most links are slow, the one with most slow links first."""
    all_of = Counter(node for link in links for node in link.pair)
    left = list(slow)
    while left:
        slow_of = Counter(node for link in left for node in link.pair)
        # a second node is not charged with its link to the first
        first, count = min(slow_of.items(), key=lambda each: (-each[1], each[0]))
        share = count / max(1, all_of[first] - _gone(first, left, slow))
        if count < policy.NODE_LINKS_LEAST or share < policy.NODE_SHARE:
            return
        mine = [link for link in left if first in link.pair]
        left = [link for link in left if first not in link.pair]
        yield _verdict("slow_node_network", (first,), mine, all_of[first])


def _gone(node: str, left: list[_Link], slow: list[_Link]) -> int:
    """Links of a node that are charged to another node already."""
    return sum(node in link.pair for link in slow) - sum(node in link.pair for link in left)


def _single(slow: list[_Link], links: list[_Link]) -> Iterator[LinkVerdict]:
    """Slow links that are not those of a slow node: one by one, or all together when there are many."""
    if len(slow) > policy.NAMED_MAX:
        yield _verdict("slow_network", (), slow, len(links))
        return
    for link in sorted(slow, key=lambda each: (-each.level, each.pair)):
        yield _verdict("slow_link", link.pair, [link], len(links))


def _verdict(kind: str, nodes: tuple[str, ...], slow: list[_Link], of: int) -> LinkVerdict:
    level = float(np.median([link.level for link in slow]))
    worst = max(slow, key=lambda link: link.level)
    return LinkVerdict(
        kind, nodes, math.exp(level), policy.CONFIDENCE, worst.worst.bytes_per_s, worst.worst.rtt_s,
        len(slow), of,
        by_rtt=all(link.by_rtt for link in slow), one_way=worst.one_way if len(slow) == 1 else None,
    )  # fmt: skip


def _all_alike(matrix: LinkMatrix, busy: dict[str, float]) -> Iterator[LinkVerdict]:
    """All links against what they carried before the suspicion: the network, or the only link there is."""
    now = {way: found for way, found in _known(matrix, busy).items() if way in matrix.before}
    count, alone = len({_pair(way) for way in now}), len(matrix.nodes) == 2
    if not now or (count < policy.LINKS_LEAST and not alone):
        return  # a few links of many do not speak for the network
    levels = [math.log(matrix.before[way].bytes_per_s / now[way].bytes_per_s) for way in sorted(now)]
    limit = math.log(policy.REFERENCE_RATIO)
    lower = sorted(levels)[math.ceil((1.0 - policy.TYPICAL_QUANTILE) * (len(levels) - 1))]
    worst = max(levels) if alone else lower
    if worst < limit:
        return
    speed = float(np.median([each.bytes_per_s for each in now.values()]))
    rtt_s = float(np.median([each.rtt_s for each in now.values()]))
    yield LinkVerdict(
        "slow_link" if alone else "slow_network",
        matrix.nodes if alone else (),
        math.exp(worst if alone else float(np.median(levels))),
        policy.CONFIDENCE * (policy.UNCERTAIN if alone else 1.0),
        speed,
        rtt_s,
        count,
        count,
    )
