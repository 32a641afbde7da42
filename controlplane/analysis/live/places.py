"""Gather ranks that stand out into what they have in common: a node, a replica of the model, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.standing import scatter

if TYPE_CHECKING:
    from controlplane.analysis.live.standing import Standing
    from controlplane.analysis.live.table import Bools, Ints, Seats
    from controlplane.analysis.robust import Floats

Place = tuple[tuple[str, int | str | None], ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """Ranks that stand out together. `level`: their lower median, in the unit of the standing: one of them
    that has something else as well does not speak for all, not even for one other."""

    text: str
    place: Place
    ranks: Ints
    level: float


def rank_suspect(seats: Seats, rank: int, level: float) -> Suspect:
    """One rank, named with node and device."""
    node, device = seats.node_of(rank), int(seats.device[rank])
    where = f"{node}, device {device}" if device >= 0 else node
    place: Place = (
        *(("node", node), ("rank", rank), ("device", device if device >= 0 else None)),
        *(("member", seats.member[rank]), ("stage", int(seats.stage[rank]))),
        ("dp_rank", int(seats.dp_rank[rank])),
    )
    return Suspect(f"rank {rank} ({where})", place, np.array([rank]), level)


def suspects(seats: Seats, standing: Standing, out: Ints) -> list[Suspect]:
    """Those that stand out: first fault domains, replicas and nodes as a whole, then single ranks, the worst
    first."""
    taken = np.zeros(len(standing.level), dtype=bool)
    found: list[Suspect] = []
    for each in (*_domains(seats, standing, out), *_replicas(seats, standing, out)):
        if not taken[each.ranks].any():
            found.append(each)
            taken[each.ranks] = True
    nodes = [each for each in _nodes(seats, standing, out) if not taken[each.ranks].any()]
    for each in nodes:
        taken[each.ranks] = True
    ranks = [rank_suspect(seats, int(rank), float(standing.level[rank])) for rank in out if not taken[rank]]
    return sorted((*found, *nodes, *ranks), key=lambda each: (-each.level, each.text))


def _nodes(seats: Seats, standing: Standing, out: Ints) -> list[Suspect]:
    return [
        Suspect(f"node {seats.nodes[node]}", (("node", seats.nodes[node]), ("rank", None)), ranks, level)
        for node, ranks, level in _whole(seats.node, len(seats.nodes), standing, out, policy.NODE_RATIO)
    ]


def _domains(seats: Seats, standing: Standing, out: Ints) -> list[Suspect]:
    """Fault domains with several nodes here, nearly all of whose ranks stand out on each of these nodes."""
    found = []
    for domain, ranks, level in _whole(seats.domain, len(seats.domains), standing, out, policy.DOMAIN_RATIO):
        nodes = np.unique(seats.node[ranks])
        name = seats.domains[domain]
        whole = all(
            _alike(standing.level[ranks[seats.node[ranks] == node]], policy.NODE_RATIO, 0.5 * level)
            for node in nodes
        )
        if name and len(nodes) > 1 and whole:
            place: Place = (("node", None), ("rank", None), ("domain", name))
            found.append(Suspect(f"fault domain {name} ({len(nodes)} nodes)", place, ranks, level))
    return found


def _replicas(seats: Seats, standing: Standing, out: Ints) -> list[Suspect]:
    """Replicas of the model that span several nodes and stand out on nearly all of their ranks."""
    count = int(seats.dp_rank.max(initial=-1)) + 1
    if count < 3:
        return []
    found = []
    for replica, ranks, level in _whole(seats.dp_rank, count, standing, out, policy.REPLICA_RATIO):
        if len(np.unique(seats.node[ranks])) > 1:
            place: Place = (("node", None), ("rank", None), ("dp_rank", replica))
            found.append(Suspect(f"replica {replica}", place, ranks, level))
    return found


def _whole(
    group: Ints, count: int, standing: Standing, out: Ints, share: float
) -> list[tuple[int, Ints, float]]:
    """The groups that stand out against the other groups, with their ranks and their level.

    A group whose ranks are nearly all high, and of which one rank stands out, is one too: otherwise its ranks
    would be named one by one when the group is near the limit. In both cases the others have to be high
    without the worst of them: it would make a group slow by itself."""
    known = (group >= 0) & ~np.isnan(standing.level)
    index = group[known]
    sizes = np.bincount(index, minlength=count)

    def mean(column: Floats | Bools) -> Floats:
        with np.errstate(invalid="ignore"):
            found: Floats = np.bincount(index, weights=column[known], minlength=count) / sizes
        return found

    level = mean(standing.level)
    several = sizes > 1
    if several.sum() < 2:
        return []
    lasting = mean(standing.lasting)
    apart = scatter(level[several], lasting[several] >= share)
    needed = np.maximum(mean(standing.limit), policy.SPREADS * apart)
    with np.errstate(invalid="ignore"):
        needed = np.maximum(needed, policy.NOISE_SPREADS * mean(standing.unsure) / np.sqrt(sizes))
        high = several & (2 * sizes <= known.sum()) & (lasting >= share) & (mean(standing.still) >= 0.5)
        chosen = high & ((level >= needed) | np.isin(np.arange(count), group[out]))
    found = []
    for each in map(int, np.flatnonzero(chosen)[: 4 * policy.NAMED_MAX]):
        ranks = np.flatnonzero(known & (group == each))
        if _alike(standing.level[ranks], share) and _without_worst(standing, ranks, apart):
            found.append((each, ranks, low_median(standing.level[ranks])))
    return found


def _without_worst(standing: Standing, ranks: Ints, apart: float) -> bool:
    """Whether the ranks of a group are slow without the worst of them: out of themselves, or half as much as
    that one."""
    worst = int(np.argmax(standing.level[ranks]))
    rest = np.delete(ranks, worst)
    level = float(standing.level[rest].mean())
    unsure = policy.NOISE_SPREADS * float(standing.unsure[rest].mean()) / np.sqrt(len(rest))
    needed = max(float(standing.limit[rest].mean()), policy.SPREADS * apart, unsure)
    return level >= needed or level >= 0.5 * float(standing.level[ranks[worst]])


def _alike(level: Floats, share: float, least: float | None = None) -> bool:
    """Whether so many of a group are high by half of its mean at least: one alone does not make a group.

    `least`: what is high; None: half of the mean."""
    high = 0.5 * level.mean() if least is None else least
    return bool((level >= high).mean() >= share)
