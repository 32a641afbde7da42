"""Say from a matrix of probes whether a link, a node's network or the whole network is slow.

Links are compared with the typical link of their class: links within a fault domain, and links between fault
domains, since racks are often joined by less. A node of which most links are slow is named instead of them.
Where everything is alike nobody is named, unless all links carry less than they did before the suspicion.

A node that is slow in sending to itself is busy, and its links are not judged. One that does not answer, or
whose peers do not, has no measurements: what is not known speaks against nobody."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.links import policy
from controlplane.analysis.robust import NORMAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    """All that probes show. `unknown`: why nothing is named; "" when something is."""

    verdicts: tuple[LinkVerdict, ...]
    judged: int  # links
    unknown: str


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
    links = [link for group in _classes(matrix, busy) for link in _against_typical(group)]
    slow = [link for link in links if link.slow]
    verdicts = [*_nodes(links, slow)]
    named = {each.nodes[0] for each in verdicts}
    left = [link for link in slow if not named.intersection(link.pair)]
    verdicts += _single(left, links)
    if not slow:
        verdicts += _all_alike(matrix, busy)
    count = len({_pair(way) for way in _known(matrix, busy)})
    return LinkJudgement(tuple(verdicts), count, "" if verdicts else _why(matrix, busy, count))


def _pair(way: Way) -> Pair:
    return min(way), max(way)


def _known(matrix: LinkMatrix, busy: dict[str, float]) -> dict[Way, Measured]:
    """The ways between two nodes that can be judged."""
    return {
        way: found
        for way, found in matrix.ways.items()
        if way[0] != way[1]
        and found.times >= policy.MEASURES_LEAST
        and way[0] not in busy
        and way[1] not in busy
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
    """The ways within fault domains, and those between: only classes with a majority."""
    known = _known(matrix, busy)

    def inside(way: Way) -> bool:
        first, second = (matrix.domains.get(node) or node for node in way)
        return first == second

    for within in (True, False):
        group = {way: found for way, found in known.items() if inside(way) is within}
        if len({_pair(way) for way in group}) >= policy.LINKS_LEAST:
            yield group


def _against_typical(group: Mapping[Way, Measured]) -> list[_Link]:
    """Each link of a class against the typical one."""
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
        slow_ways = [way for way in ways if levels[way] >= needed]
        late = [way for way in ways if _late(group[way].rtt_s, rtt_s)]
        one_way = worst if len(ways) == 2 and len(slow_ways) == 1 else None
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
        rivals = [node for node, other in slow_of.items() if other == count and node != first]
        share = count / max(1, all_of[first] - _gone(first, left, slow))
        if count < policy.NODE_LINKS_LEAST or share < policy.NODE_SHARE:
            return
        if any(count / all_of[node] >= policy.NODE_SHARE for node in rivals) and len(all_of) < 4:
            return  # three nodes, all links slow against nothing: nobody is odd
        mine = [link for link in left if first in link.pair]
        left = [link for link in left if first not in link.pair]
        yield _verdict("slow_node_network", (first,), mine, all_of[first], len(links))


def _gone(node: str, left: list[_Link], slow: list[_Link]) -> int:
    """Links of a node that are charged to another node already."""
    return sum(node in link.pair for link in slow) - sum(node in link.pair for link in left)


def _single(slow: list[_Link], links: list[_Link]) -> Iterator[LinkVerdict]:
    """Slow links that are not those of a slow node: one by one, or all together when there are many."""
    if len(slow) > policy.NAMED_MAX:
        yield _verdict("slow_network", (), slow, len(links), len(links))
        return
    for link in sorted(slow, key=lambda each: (-each.level, each.pair)):
        yield _verdict("slow_link", link.pair, [link], len(links), len(links))


def _verdict(kind: str, nodes: tuple[str, ...], slow: list[_Link], of: int, judged: int) -> LinkVerdict:
    level = float(np.median([link.level for link in slow]))
    worst = max(slow, key=lambda link: link.level)
    sure = policy.CONFIDENCE * (1.0 if judged >= policy.FEW_LINKS else policy.FEW)
    return LinkVerdict(
        kind, nodes, math.exp(level), sure, worst.worst.bytes_per_s, worst.worst.rtt_s, len(slow), of,
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


def _why(matrix: LinkMatrix, busy: dict[str, float], judged: int) -> str:
    """Why nothing is named."""
    if busy:
        names = ", ".join(f"{node} ({ratio:.1f} times)" for node, ratio in sorted(busy.items())[:4])
        return f"nodes are too busy to judge their links, slow even without a link: {names}"
    if not judged:
        silent = _few(f"{one} to {other}: {why}" for (one, other), why in matrix.silent.items())
        return f"no link was measured often enough{silent and f' ({silent})'}"
    if len(matrix.nodes) == 2 and not matrix.before:
        return "there is one link, and nothing to compare it with"
    return f"{judged} links were probed without load, and none carries much less than the others"


def _few(texts: Iterable[str]) -> str:
    return "; ".join(list(texts)[:3])
