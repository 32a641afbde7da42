"""Chance accuses nobody: what scatters from step to step has to be told from what is steadily slow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Shape, Truth
from benchmarks.diagnosis.live.score import judge
from controlplane.core.state.findings import Level
from tests.analysis.live.jobs import job, kinds, opened, watched

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import RankWindow

UNEVEN = Shape(
    seed=810089, nodes=1, per_node=8, pp=2, tp=1, windows=45, steps=6, step_s=1.67, devices=True, tokens=True,
    noise="gaussian", sigma=0.006, lasting=0.0006, length_sigma=0.1, evaluate=True, snapshot_every=6,
)  # fmt: skip

DEVICES = Shape(
    seed=810033, nodes=3, per_node=2, pp=1, tp=1, windows=30, steps=4, step_s=2.5, devices=True, tokens=True,
    noise="noisy_neighbour", sigma=0.01712352043522827, lasting=0.0035026963601554797, length_sigma=0.0,
    evaluate=True, snapshot_every=2,
)  # fmt: skip
PAIR = Shape(
    seed=820012, nodes=2, per_node=1, pp=2, tp=1, windows=60, steps=4, step_s=2.5, devices=False,
    tokens=False, noise="gaussian", sigma=0.005, lasting=0.009, length_sigma=0.0, evaluate=False,
    snapshot_every=6,
)  # fmt: skip
SNAPSHOTS = Shape(
    seed=820083, nodes=2, per_node=8, pp=1, tp=1, windows=60, steps=4, step_s=2.5, devices=False,
    tokens=False, noise="drift", sigma=0.00531811077307946, lasting=0.009064730435422526, length_sigma=0.1,
    evaluate=True, snapshot_every=7,
)  # fmt: skip
SLIGHTLY_MORE = [
    (820011, 5, 2, 2, 101, 2, "lognormal", 0.020221508150735684, 0.01990681755424458, False, 2),
    (820016, 4, 8, 1, 96, 4, "noisy_neighbour", 0.02022699479400149, 0.01530421777761329, True, 6),
]


def test_a_minute_that_happens_to_scatter_little_accuses_nobody_of_more_work() -> None:
    truth = Truth("uneven_work", factor=2.66)
    outcome = judge(1, windows.played(UNEVEN, truth), truth, UNEVEN.per_node)
    assert not outcome.failed
    assert list(outcome.opened) == [outcome.expected], outcome.texts


def test_the_cpu_time_of_ranks_whose_devices_compute_says_nothing_of_lengths() -> None:
    outcome = judge(1, windows.played(DEVICES, Truth()), Truth(), DEVICES.per_node)
    assert not outcome.failed and outcome.texts == ()


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(
    ("kind", "factor"), [("throttled", 1.45), ("throttled", 1.2), ("slow_rank", 1.45), ("heavy_work", 1.45)]
)
def test_who_has_no_peers_is_held_against_its_own_past_in_why_it_is_slow(
    kind: str, factor: float, stages: int
) -> None:
    """Two ranks of one stage, and two stages of one rank each; nobody reports the kernel's counts."""
    shape = replace(PAIR, pp=stages)
    truth = Truth(kind, rank=0, factor=factor, onset=33)
    outcome = judge(1, windows.played(shape, truth), truth, PAIR.per_node)
    assert not outcome.failed and list(outcome.opened) == [(kind, 0, -1, -1)], outcome.texts
    assert "of its peers" not in "".join(outcome.texts)


def test_one_rank_with_much_work_does_not_make_its_node_critical() -> None:
    def own(rank: int, window: int) -> float:
        node = 1.3 if rank // 4 == 1 and window >= 20 else 1.0
        return 2.6 * node if rank == 7 else node

    found = [each for each in opened(watched(job(24, 40, own=own))) if each.kind == "slow_node"]
    assert [each.subject for each in found] == ["node n1"]
    assert found[0].level is Level.DEGRADED and float(dict(found[0].evidence)["own_ratio"]) < 1.4


def test_long_snapshots_of_one_rank_beside_an_evaluation_are_no_job_that_became_slow() -> None:
    truth = Truth("slow_snapshot", rank=5, factor=1.6900748323459984, onset=27)
    outcome = judge(1, windows.played(SNAPSHOTS, truth), truth, SNAPSHOTS.per_node)
    assert not outcome.failed and list(outcome.opened) == [outcome.expected], outcome.texts


@pytest.mark.parametrize("drawn", SLIGHTLY_MORE, ids=["3", "18"])
def test_a_rank_with_a_little_more_work_is_not_called_slow(drawn: tuple[Any, ...]) -> None:
    seed, nodes, per_node, tp, count, steps, noise, sigma, lasting, evaluate, every = drawn
    shape = Shape(
        seed, nodes, per_node, 1, tp, count, steps, 10.0 / steps, devices=False, tokens=True, noise=noise,
        sigma=sigma, lasting=lasting, length_sigma=0.0, evaluate=evaluate, snapshot_every=every,
    )  # fmt: skip
    rank, factor, onset = (3, 1.0540155991406015, 28) if tp == 2 else (18, 1.055416016904855, 40)
    truth = Truth("heavy_work", rank=rank, factor=factor, onset=onset)
    outcome = judge(1, windows.played(shape, truth), truth, shape.per_node)
    assert not outcome.failed and list(outcome.opened) == [outcome.expected], outcome.texts


@pytest.mark.parametrize(("spread", "told"), [(0.03, []), (0.3, [("uneven_work", "")])])
def test_a_few_measured_steps_of_many_do_not_make_work_uneven(spread: float, told: list[Any]) -> None:
    """Of 500 short steps 19 are measured, and the others divided like them: so work scatters from window to
    window as the mean of 19 steps does, not of 500."""

    def short(rank: int, window: int, one: RankWindow) -> RankWindow:
        own_s = one.forward_s + one.backward_s + one.optimizer_s
        return one._replace(steps=500, last_step=500 * (window + 1), covered=19, cpu_s=0.9 * own_s)

    windows = job(8, 60, change=short, noise=spread / 19**0.5)
    assert kinds(opened(watched(windows))) == told
