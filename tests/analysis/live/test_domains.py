"""Slow nodes that share a fault domain are one finding about the domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.analysis.live.jobs import job, kinds, opened, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import RankWindow

RACK_NODES = 3
RANKS = 4 * 3 * RACK_NODES  # four ranks per node, three racks


def racked(rank: int, _window: int, row: RankWindow) -> RankWindow:
    return row._replace(domain=f"rack{rank // (4 * RACK_NODES)}")


def slow(nodes: tuple[int, ...], factor: float = 1.6) -> Callable[[int, int], float]:
    """Own work of ranks on these nodes takes longer after ten windows."""
    return lambda rank, window: factor if rank // 4 in nodes and window >= 10 else 1.0


def found(
    nodes: tuple[int, ...], change: Callable[[int, int, RankWindow], RankWindow] = racked
) -> list[tuple[str, str]]:
    return kinds(opened(watched(job(RANKS, 30, slow(nodes), change))))


def test_a_rack_of_slow_nodes_is_one_finding() -> None:
    findings = opened(watched(job(RANKS, 30, slow((3, 4, 5)), racked)))
    assert kinds(findings) == [("slow_domain", "fault domain rack1 (3 nodes)")]
    place = dict(findings[0].place)
    assert place["domain"] == "rack1" and place["node"] is None and place["rank"] is None
    assert "share" in findings[0].recommendation


@pytest.mark.parametrize("nodes", [(3,), (3, 4)])
def test_a_rack_with_a_sound_node_is_not_named(nodes: tuple[int, ...]) -> None:
    assert found(nodes) == [("slow_node", f"node n{each}") for each in nodes]


def test_slow_nodes_of_different_racks_are_nodes() -> None:
    assert found((0, 4, 8)) == [("slow_node", f"node n{each}") for each in (0, 4, 8)]


def test_a_node_that_is_its_own_domain_is_a_node() -> None:
    def alone(rank: int, _window: int, row: RankWindow) -> RankWindow:
        return row._replace(domain=row.node)

    assert found((3,), alone) == [("slow_node", "node n3")]


def test_without_domains_there_are_nodes() -> None:
    assert found((3, 4, 5), lambda rank, window, row: row) == [
        ("slow_node", f"node n{each}") for each in (3, 4, 5)
    ]
