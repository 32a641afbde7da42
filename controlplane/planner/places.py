"""Assign ranks to devices: tensor groups inside a node, copies of one shard in different failure domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.planner.shapes import LayoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.planner.shapes import Layout


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node to place ranks on. `domain`: its failure domain (a rack, a power feed)."""

    node: str
    devices: int
    domain: str


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """One rank's coordinates in the layout, and its device."""

    rank: int
    tp: int
    cp: int
    dp: int
    pp: int
    node: str
    device: int


def place(layout: Layout, sites: Sequence[PlannedNode]) -> list[DevicePlace]:
    """Every rank's place, by rank; tp runs fastest, then cp, dp, pp (Megatron's order).

    A tensor group takes neighbouring devices of one node. The dp copies of one (pp, cp) group go to one
    failure domain after the other, so that two share a domain only when there are fewer domains than
    copies. LayoutError when a tensor group fits no node, or there are too few devices."""
    blocks = _blocks(layout.tp, sites)
    wanted = layout.cp * layout.dp * layout.pp
    if len(blocks) < wanted:
        have = sum(site.devices for site in sites)
        raise LayoutError(
            f"{wanted} tensor groups of {layout.tp} need a node with {layout.tp} free devices each; "
            f"{len(sites)} nodes with {have} devices hold {len(blocks)}"
        )
    groups = [(pp, cp) for pp in range(layout.pp) for cp in range(layout.cp)]
    copies = [(*group, dp) for group in groups for dp in range(layout.dp)]
    dealt = dict(zip(copies, blocks, strict=False))
    places: list[DevicePlace] = []
    for pp in range(layout.pp):
        for dp in range(layout.dp):
            for cp in range(layout.cp):
                node, first = dealt[pp, cp, dp]
                for tp in range(layout.tp):
                    places.append(DevicePlace(len(places), tp, cp, dp, pp, node, first + tp))
    return places


def _blocks(tp: int, sites: Sequence[PlannedNode]) -> list[tuple[str, int]]:
    """(node, first device) for each tensor group that fits.

    Neighbours in the list are in different failure domains as long as there are several, and each node
    comes once before any comes again."""
    if tp < 1:
        raise LayoutError(f"tp is {tp}: give 1 or more")
    blocks = []
    for turn in range(max((site.devices // tp for site in sites), default=0)):
        blocks += [(site.node, turn * tp) for site in _by_turns(sites) if (turn + 1) * tp <= site.devices]
    return blocks


def _by_turns(sites: Sequence[PlannedNode]) -> list[PlannedNode]:
    """One site of each failure domain, then the next of each, in the order given."""
    domains: dict[str, list[PlannedNode]] = {}
    for site in sites:
        domains.setdefault(site.domain, []).append(site)
    longest = max(map(len, domains.values()), default=0)
    return [group[turn] for turn in range(longest) for group in domains.values() if turn < len(group)]


def shared_domains(places: Sequence[DevicePlace], sites: Sequence[PlannedNode]) -> int:
    """How many copies of shards are in a failure domain that already holds a copy of the same shard: 0 is
    best."""
    domain = {site.node: site.domain for site in sites}
    copies: dict[tuple[int, int, int], list[str]] = {}
    for spot in places:
        copies.setdefault((spot.tp, spot.cp, spot.pp), []).append(domain[spot.node])
    return sum(len(group) - len(set(group)) for group in copies.values())
