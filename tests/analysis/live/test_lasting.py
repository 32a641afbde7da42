"""What is too little to be seen in one minute is named by four, and healthy ranks that differ are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Shape, Truth
from benchmarks.diagnosis.live.score import judge
from controlplane.analysis.live.lasting.levels import LevelHistory
from controlplane.analysis.live.lasting.standings import stands_apart
from tests.analysis.live.jobs import STEPS, job, kinds, opened, watched

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import RankWindow

SHAPE = Shape(
    seed=3, nodes=6, per_node=4, pp=1, tp=1, windows=90, steps=6, step_s=1.6, devices=False, tokens=False,
    noise="gaussian", sigma=0.02, lasting=0.01, length_sigma=0.1, evaluate=True, snapshot_every=6,
)  # fmt: skip
SLIGHT = [
    (SHAPE, Truth("slow_rank", rank=5, factor=1.07, onset=30)),
    (replace(SHAPE, noise="bursts"), Truth("slow_rank", rank=20, factor=1.08, onset=40)),
    (replace(SHAPE, lasting=0.005), Truth("slow_rank", rank=5, factor=1.08)),  # always: against many peers
    (SHAPE, Truth("slow_node", node=2, factor=1.06, onset=30)),
    (replace(SHAPE, devices=True, tokens=True), Truth("heavy_work", rank=5, factor=1.08, onset=30)),
    (replace(SHAPE, nodes=1), Truth("slow_rank", rank=2, factor=1.08, onset=30)),  # of four
    (SHAPE, Truth("slow_data", rank=7, factor=1.08, onset=30)),
]


@pytest.mark.parametrize(("shape", "truth"), SLIGHT, ids=lambda each: getattr(each, "kind", None))
def test_a_slight_fault_that_lasts_is_named_and_nothing_else(shape: Shape, truth: Truth) -> None:
    outcome = judge(1, windows.played(shape, truth), truth, shape.per_node)
    assert not outcome.failed
    assert list(outcome.opened) == [outcome.expected], outcome.texts


@pytest.mark.parametrize("noise", ["gaussian", "lognormal", "bursts", "noisy_neighbour", "drift"])
@pytest.mark.parametrize("nodes", [1, 3, 12])
def test_healthy_ranks_that_differ_are_not_named(noise: str, nodes: int) -> None:
    healthy = replace(SHAPE, nodes=nodes, noise=noise, sigma=0.05, lasting=0.02)
    outcome = judge(1, windows.played(healthy, Truth()), Truth(), healthy.per_node)
    assert not outcome.failed and outcome.texts == ()


def test_a_peer_that_always_was_slower_does_not_hide_who_becomes_slower() -> None:
    def own(rank: int, window: int) -> float:
        return 1.04 if rank == 1 else 1.07 if rank == 2 and window >= 20 else 1.0

    assert kinds(opened(watched(job(4, 80, own=own)))) == [("slow_rank", "rank 2 (n0, device 2)")]


def test_half_of_the_ranks_that_always_were_slower_are_not_named() -> None:
    assert opened(watched(job(16, 80, own=lambda rank, window: 1.06 if rank < 8 else 1.0))) == []


def test_how_much_healthy_ranks_differ_is_known_from_all_stages() -> None:
    def stages(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(stage=rank // 12, dp_rank=rank % 12)

    def own(rank: int, window: int) -> float:  # by chance the peers of rank 6 are alike; the others are not
        return 1.058 if rank == 6 else 1.0 if rank < 12 else 1.0 + 0.02 * (rank % 3)

    assert opened(watched(job(24, 60, own=own, change=stages))) == []
    assert kinds(opened(watched(job(12, 60, own=own)))) == [("slow_rank", "rank 6 (n1, device 2)")]


def test_it_stays_open_for_as_long_as_it_lasts() -> None:
    found = watched(job(8, 200, own=lambda rank, window: 1.07 if rank == 6 and window >= 60 else 1.0))
    named = [bool(each.findings) for each in found]
    assert not any(named[:62]) and all(named[90:])


def test_it_is_over_soon_after_the_fault_is() -> None:
    found = watched(job(8, 160, own=lambda rank, window: 1.07 if rank == 6 and 60 <= window < 120 else 1.0))
    named = [bool(each.findings) for each in found]
    assert all(named[95:119]) and not any(named[130:])


def test_who_became_slower_and_is_as_fast_as_others_costs_nothing() -> None:
    def own(rank: int, window: int) -> float:
        return 0.94 if rank == 6 and window < 60 else 1.0

    assert opened(watched(job(8, 160, own=own))) == []


def test_who_stays_while_the_only_other_one_becomes_faster_is_not_named() -> None:
    def own(rank: int, window: int) -> float:
        return 0.9 if rank == 1 and window >= 60 else 1.0

    assert all(each.place == () for each in opened(watched(job(2, 160, own=own))))


def test_a_stage_that_becomes_slow_is_not_overfull() -> None:
    def stages(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(stage=rank, dp_rank=0)

    def own(rank: int, window: int) -> float:
        drift = 1.0 - 0.15 * min(1.0, window / 60)  # so that neither has become slower than it was
        return drift * (1.14 if rank == 1 and window >= 40 else 1.0)

    found = opened(watched(job(2, 120, own=own, change=stages)))
    assert not [each for each in kinds(found) if each[0].startswith("overfull")]


def test_a_few_peers_have_to_be_further_away_than_many() -> None:
    level = np.array([0.062, *np.random.default_rng(1).normal(0.0, 0.01, 199)])
    ranks = np.array([0])
    assert stands_apart(level, ranks, np.arange(1, 200))
    level[1:9] = [-0.01, 0.01] * 4  # a standard deviation of 0.0107, as that of the 199
    assert not stands_apart(level, ranks, np.arange(1, 9))
    assert stands_apart(level + 0.03 * (level > 0.06), ranks, np.arange(1, 9))
    assert not stands_apart(level + 9.0 * (level > 0.06), ranks, np.arange(1, 5))  # too few to say


def test_what_is_usual_is_from_before_the_evidence() -> None:
    history = LevelHistory(2)
    for block in range(14):
        value = 0.1 if block >= 5 else 0.0
        history.add(np.full((6, 2), value, dtype=np.float32), 60.0 * block, STEPS * block)
        assert history.full == (block >= 3)
        if block >= 6:  # then there are three older ones than the newest four
            assert history.usual.tolist() == [0.0, 0.0]
    assert history.blocks.newest(4).min() == pytest.approx(0.1)
