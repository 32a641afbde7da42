"""When a checkpoint is due, against the published formulas."""

from __future__ import annotations

import math

import pytest

from controlplane.core.state import cadence
from controlplane.core.state.cadence import CadenceChoice, CheckpointCosts, Last
from tests.core.make import spec
from tests.core.test_cluster import running


def test_young_s_first_order_interval() -> None:
    assert cadence.young(2.0, 3600.0) == math.sqrt(2 * 2.0 * 3600.0) == 120.0


@pytest.mark.parametrize(("cost_s", "mtbf_s"), [(0.01, 21_600.0), (2.0, 3600.0), (60.0, 600.0)])
def test_daly_s_higher_order_interval(cost_s: float, mtbf_s: float) -> None:
    ratio = cost_s / (2 * mtbf_s)
    formula = math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s
    assert cadence.daly(cost_s, mtbf_s) == pytest.approx(formula)


def test_daly_s_interval_is_near_the_one_that_loses_least() -> None:
    cost_s, mtbf_s, restart_s = 20.0, 1200.0, 0.0

    def wall(interval_s: float) -> float:
        """Daly's complete model: the wall time per second of work."""
        segments = 1.0 / interval_s
        return (
            mtbf_s * math.exp(restart_s / mtbf_s) * (math.exp((interval_s + cost_s) / mtbf_s) - 1) * segments
        )

    best = min((wall(float(s)), s) for s in range(5, 2000))[1]
    assert cadence.daly(cost_s, mtbf_s) == pytest.approx(best, rel=0.02)


def test_a_checkpoint_that_costs_more_than_failures_do_is_made_once_per_failure() -> None:
    assert cadence.daly(100.0, 50.0) == 50.0
    assert cadence.daly(101.0, 50.0) == 50.0


def test_the_prior_fades_with_what_is_seen() -> None:
    assert cadence.mtbf(0, 0.0) == cadence.PRIOR_MTBF_S
    assert cadence.mtbf(9, 3600.0) == (cadence.PRIOR_MTBF_S + 3600.0) / 10
    assert cadence.mtbf(100, 100 * 600.0) == pytest.approx(600.0, rel=0.5)


def test_the_choice_counts_stall_and_slowdown_and_is_never_shorter_than_the_upload() -> None:
    choice = cadence.choose(CheckpointCosts(stall_s=1.0, upload_s=20.0), incidents=1, watched_s=0.0)
    assert choice.cost_s == 1.0 + cadence.SLOWDOWN_SHARE * 20.0
    assert choice.interval_s == cadence.daly(choice.cost_s, cadence.PRIOR_MTBF_S / 2)
    slow = cadence.choose(CheckpointCosts(stall_s=0.1, upload_s=5000.0), incidents=1000, watched_s=0.0)
    assert slow.interval_s == 5000.0
    assert "every 5000.0 s" in slow.reason


def test_small_changes_are_not_told() -> None:
    old = CadenceChoice(100.0, 1.0, 1.0, 1.0)
    assert cadence.differs(old, None)
    assert not cadence.differs(CadenceChoice(109.0, 1.0, 1.0, 1.0), old)
    assert cadence.differs(CadenceChoice(111.0, 1.0, 1.0, 1.0), old)


@pytest.mark.parametrize(
    ("step", "begun", "due"),
    [(90, 0, False), (100, 0, True), (110, 100, False), (210, 100, True), (100, 100, False)],
)
def test_a_boundary_is_passed_once(step: int, begun: int, due: bool) -> None:
    assert cadence.due(spec(), step, 1e9, Last(begun, 0.0), None) is due


def test_seconds_count_besides_steps_and_alone_with_auto() -> None:
    timed = spec(checkpoint_every_s=60.0)
    assert cadence.due(timed, 10, 60.0, Last(0, 0.0), None)
    assert not cadence.due(timed, 10, 59.0, Last(0, 0.0), None)
    assert cadence.due(timed, 100, 1.0, Last(0, 0.0), None)
    auto, choice = spec(checkpoint_auto=True), CadenceChoice(30.0, 1.0, 1.0, 1.0)
    assert not cadence.due(auto, 100, 29.0, Last(0, 0.0), choice)
    assert cadence.due(auto, 10, 30.0, Last(0, 0.0), choice)
    assert not cadence.due(auto, 0, 99.0, Last(0, 0.0), choice), "no step was made since"


def test_the_core_tells_its_choice_and_follows_it() -> None:
    stage = running("submit nodes=1 nproc=2 auto=yes storage=file:///c", "a")
    told = [line for line in stage.do("snapshot 10 stall=0.02") if line.startswith("Note cadence j:")]
    assert "a checkpoint every 29.4 s: one costs 0.020 s" in told[-1]
    assert not [line for line in stage.do("snapshot 100 stall=0.02") if "started" in line]
    for _ in range(3):
        stage.do("beat a")
        stage.do("wait 10")
    assert [line for line in stage.do("snapshot 110 stall=0.02") if "CheckpointChanged 110-1 started" in line]
    after = [line for line in stage.do("persisted") if line.startswith("Note cadence")]
    assert not after, "nothing changed by more than a tenth"


def test_failures_shorten_the_interval() -> None:
    stage = running("submit nodes=1 nproc=2 auto=yes storage=file:///c", "a")
    stage.do("snapshot 10 stall=0.02")
    stage.do("report j.1000000 exited gen=1 step=12 cause=signaled signal=9")
    stage.do("report j.1000001 ready gen=1 held=12")
    stage.do("report j.1000002 starting")
    stage.do("report j.1000002 ready held=-1")
    stage.do("stored")
    stage.do("all forming gen=2")
    told = [line for line in stage.do("all running gen=2 step=12") if line.startswith("Note cadence j:")]
    assert "a failure is expected every 10800 s" in told[-1]
