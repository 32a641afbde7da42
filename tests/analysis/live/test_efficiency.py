"""Tokens per second and MFU are computed by the layout of the job, or said to be unknown with the reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from controlplane.analysis.live.efficiency import Efficiency
from controlplane.analysis.live.efficiency import of_window as achieved
from controlplane.analysis.live.readings import JobWindow, RankWork
from controlplane.analysis.live.table import columns_of, tabulate
from tests.analysis.live.jobs import STEPS, row

PEAK = 1e12


def window(count: int = 4, work: dict[str, Any] | None = None, **changed: Any) -> JobWindow:
    """Ranks whose steps take 1 s and count 1000 tokens each. `changed`: a value, or one by rank."""

    def one(name: str, rank: int) -> Any:
        value = changed.get(name)
        return value(rank) if callable(value) else value

    rows = [
        row(rank, 0, 0.8, 1.0, **({"tokens": 1000 * STEPS} | {name: one(name, rank) for name in changed}))
        for rank in range(count)
    ]
    works = [replace(RankWork(rank, 6e6, PEAK, "counted"), **(work or {})) for rank in range(count)]
    return JobWindow("j", 1, 0.0, 5.0, columns_of(rows), count, work=tuple(works))


def of_window(made: JobWindow) -> Efficiency:
    """What the devices achieved in a window that is a job's first."""
    return achieved(made, tabulate(made, None).reported)


def test_the_replicas_of_a_model_add_up() -> None:
    found = of_window(window(samples=10 * STEPS))
    assert (found.samples_per_s, found.tokens_per_s) == (40.0, 4000.0)
    assert (found.flops_per_s, found.peak_flops) == (4000 * 6e6, 4 * PEAK)
    assert found.mfu == pytest.approx(0.006) and found.reason == ""


def test_stages_share_tokens_and_each_has_its_own_operations() -> None:
    found = of_window(window(dp_rank=lambda rank: rank // 2, stage=lambda rank: rank % 2))
    assert found.tokens_per_s == 2000.0
    assert found.flops_per_s == 2000 * (6e6 + 6e6)
    only_last = of_window(
        window(
            dp_rank=lambda rank: rank // 2,
            stage=lambda rank: rank % 2,
            tokens=lambda rank: 1000 * STEPS * (rank % 2),
        )
    )
    assert only_last.flops_per_s == found.flops_per_s, "one stage that counts tokens suffices"


def test_a_tensor_group_counts_once_and_only_what_is_declared() -> None:
    places: dict[str, Any] = {"dp_rank": lambda rank: rank // 2, "tp_rank": lambda rank: rank % 2}
    found = of_window(window(work={"note": "declared"}, **places))
    assert (found.tokens_per_s, found.flops_per_s) == (2000.0, 2000 * 6e6)
    counted = of_window(window(**places))
    assert counted.mfu is None and "tensor parallelism" in counted.reason


def test_context_groups_have_different_tokens() -> None:
    assert of_window(window(dp_rank=0, cp_rank=lambda rank: rank)).tokens_per_s == 4000.0


def test_declared_operations_need_no_tokens_and_no_model() -> None:
    found = of_window(window(tokens=0, flops=2e11 * STEPS, work={"token_flops": 0.0, "note": "whatever"}))
    assert found.tokens_per_s is None
    assert found.mfu == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (window(tokens=0), "counts no tokens"),
        (window(work={"token_flops": 0.0, "note": "layers are not declared"}), "rank 0: layers are not"),
        (window(work={"peak_flops": 0.0, "note": "it trains on a CPU"}), "rank 0: it trains on a CPU"),
        (replace(window(), work=()), "older than MFU"),
        (replace(window(), ranks_expected=8), "only 4 of 8 ranks"),
        (window(flops=lambda rank: 1e9 * rank), "only 3 of 4 ranks count operations"),
        (window(work={"token_flops": 1e15}), "impossible"),
        (replace(window(), ranks=columns_of([])), "no rank has completed a step"),
        (window(wall_s=0.0), "no rank has completed a step"),
        (window(tokens=math.nan), "no rank has completed a step"),
    ],
)  # fmt: skip
def test_what_is_not_known_has_a_reason_and_no_value(made: JobWindow, reason: str) -> None:
    found = of_window(made)
    assert found.mfu is None
    assert reason in found.reason


def test_more_than_the_peak_is_told_as_impossible() -> None:
    found = of_window(window(work={"peak_flops": 5e9}))
    assert found.mfu is None
    assert "2.4e+10 operations per second are more than the peak of 2e+10" in found.reason
    assert found.reason.endswith("the peak or the count is wrong")


def test_nothing_is_known_before_the_first_window() -> None:
    assert of_window(JobWindow("j", 1, 0.0, 5.0, columns_of([]), 4)) == Efficiency()
