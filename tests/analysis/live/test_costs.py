"""What a job loses within its steps is what its busiest rank spends beyond a typical one's work."""

from __future__ import annotations

import math
from typing import Any

import pytest

from controlplane.analysis.live.costs import CAUSES, lost_s
from controlplane.analysis.live.readings import JobWindow, RankWindow
from controlplane.analysis.live.table import columns_of, tabulate
from controlplane.daemon.telemetry.metrics import LOST
from tests.analysis.live.jobs import STEPS, row


def lost(*rows: RankWindow) -> dict[str, float]:
    return lost_s(tabulate(JobWindow("j", 1, 0.0, 5.0, columns_of(rows), len(rows)), None))


def ranks(step_s: float = 1.0, **worst: Any) -> list[RankWindow]:
    """Four ranks that work for 0.5 s of a step, and wait 0.02 s for data; rank 2 is as `worst` says."""
    own_s = worst.pop("own_s", 0.5)
    return [
        row(rank, 0, own_s if rank == 2 else 0.5, step_s, **(worst if rank == 2 else {})) for rank in range(4)
    ]


def test_a_job_without_a_slow_rank_loses_its_wait_for_data() -> None:
    assert lost(*ranks()) == {"data": pytest.approx(0.02 * STEPS)}


def test_a_slow_rank_costs_what_it_takes_more() -> None:
    found = lost(*ranks(own_s=0.9))
    assert found == {"data": pytest.approx(0.02 * STEPS), "slow_rank": pytest.approx(0.4 * STEPS)}


def test_a_rank_that_waits_for_data_is_no_slow_rank() -> None:
    assert lost(*ranks(data_s=0.4)) == {"data": pytest.approx(0.4 * STEPS)}


def test_what_the_script_declares_is_not_slowness() -> None:
    slow = ranks(own_s=0.9, compile_s=1.5, evaluate_s=0.3)
    found = lost(*slow)
    assert found["compile"] == 1.5 and found["evaluate"] == 0.3
    assert found["slow_rank"] == pytest.approx(0.4 * STEPS - 1.8)


def test_no_more_is_lost_than_the_steps_took() -> None:
    found = lost(*ranks(compile_s=1e9, own_s=0.9))
    assert sum(found.values()) == pytest.approx(STEPS)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_row_that_cannot_be_believed_costs_nothing(bad: float) -> None:
    assert lost(*ranks(compile_s=bad)) == lost(*ranks())
    assert lost(*(each._replace(data_s=bad) for each in ranks())) == {}


def test_each_cause_is_one_of_the_ledgers() -> None:
    assert set(CAUSES) <= set(LOST)
