"""Metrics that grow, jump, or only look so: slopes, forecasts, and the watch of one metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.diagnosis.metrics import FAMILIES, LEVEL, drift_found_after_s, false_alarms
from controlplane.analysis.trends import policy
from controlplane.analysis.trends.slopes import reached, slope, steady_growth, theil_sen
from controlplane.analysis.trends.watching import MetricWatch

if TYPE_CHECKING:
    from controlplane.analysis.robust import Floats


def line(seed: int, per_unit: float, count: int = 40, noise: float = 1.0) -> tuple[Floats, Floats]:
    at = np.arange(float(count))
    return at, per_unit * at + np.random.default_rng(seed).normal(0.0, noise, size=count)


def test_a_few_wild_values_do_not_move_a_slope() -> None:
    at, values = line(1, 2.0)
    values[[3, 17, 18, 30]] = (1e6, -1e6, 1e9, -1e3)
    assert theil_sen(at, values) == pytest.approx(2.0, abs=0.1)


def test_the_interval_of_a_slope_holds_it_as_often_as_it_claims() -> None:
    found = [slope(*line(seed, 0.5)) for seed in range(300)]
    held = sum(each.low <= 0.5 <= each.high for each in found)
    assert 275 <= held <= 297  # 95 % of 300, within three standard deviations
    assert all(each.low <= each.value <= each.high for each in found)


def test_the_moment_of_a_limit_is_in_its_interval() -> None:
    """The line is at 100 when `at` is 200."""
    found = [reached(*line(seed, 0.5), 100.0) for seed in range(200)]
    held = [each for each in found if each is not None and each.earliest <= 200.0 <= each.latest]
    assert len(held) >= 180
    assert np.median([each.likely for each in held]) == pytest.approx(200.0, rel=0.03)


def test_what_moves_away_from_a_limit_never_reaches_it() -> None:
    assert reached(*line(1, 0.5), -5.0) is None
    down = reached(*line(1, -0.5), -100.0)
    assert down is not None and down.likely == pytest.approx(200.0, rel=0.1)


def test_growth_that_may_be_chance_may_never_reach_a_limit() -> None:
    at, values = line(4, 0.0)
    found = reached(at, values, 50.0 if theil_sen(at, values) > 0 else -50.0)
    assert found is not None and found.latest == math.inf


def test_what_fills_up_does_not_grow_steadily() -> None:
    at = np.arange(60.0)
    assert steady_growth(at, 5.0 * at, 10.0) == pytest.approx(5.0)
    assert steady_growth(at, 300.0 * (1.0 - np.exp(-at / 8.0)), 10.0) is None
    assert steady_growth(at, np.random.default_rng(2).normal(size=60), 0.0) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_noise_gives_no_alarm(family: str) -> None:
    assert sum(false_alarms(family, seed, 8) for seed in range(4)) == 0


@pytest.mark.parametrize("family", ["Gaussian", "heavy tail (t, 2 degrees of freedom)", "AR(1), 0.9"])
def test_a_drift_is_seen(family: str) -> None:
    """Of ten standard deviations a day: it leaves the usual range within some hours."""
    hours = [drift_found_after_s(family, seed, 10.0) / 3600.0 for seed in range(3)]
    assert max(hours) < 24.0  # NaN, not found, is not less


def test_a_jump_is_seen_with_its_beginning_and_its_end() -> None:
    watch = MetricWatch(20)
    values = np.random.default_rng(3).normal(10.0, 0.2, size=120)
    values[60:90] += 5.0
    states = []
    for at, value in enumerate(values):
        watch.observe(60.0 * at, value)
        states.append(watch.change)
    seen = [at for at, change in enumerate(states) if change is not None]
    assert 60 <= seen[0] <= 66 and all(states[at] is not None for at in range(66, 90))
    change = states[80]
    assert change is not None and change.rises and change.since_s == pytest.approx(59 * 60.0, abs=60.0)
    assert change.usual == pytest.approx(10.0, abs=0.2) and change.level == pytest.approx(15.0, abs=0.3)
    assert states[-1] is None


def test_a_fall_is_no_rise() -> None:
    watch = MetricWatch(20)
    for at in range(40):
        watch.observe(float(at), 10.0 + 0.1 * (at % 3) if at < 25 else 4.0)
    assert watch.change is not None and not watch.change.rises


def test_a_steady_rise_says_when_it_reaches_a_limit() -> None:
    watch = MetricWatch(20)
    noise = np.random.default_rng(5).normal(0.0, 0.3, size=60)
    for at in range(60):
        watch.observe(100.0 * at, 20.0 + max(0, at - 20) * 1.0 + float(noise[at]))
    found = watch.reaches(100.0, 6000.0)
    assert found is not None and found.likely == pytest.approx(10_000.0, rel=0.03)
    assert found.earliest <= found.likely <= found.latest < math.inf
    assert watch.reaches(5.0, 6000.0) is None and watch.change is not None and watch.change.per_s is not None


def test_a_jump_that_stays_reaches_nothing() -> None:
    watch = MetricWatch(20)
    for at in range(60):
        watch.observe(float(at), 10.0 + 0.1 * (at % 3) + (5.0 if at >= 30 else 0.0))
    assert watch.change is not None and watch.change.per_s is None and watch.reaches(100.0, 60.0) is None


def test_nothing_is_said_while_the_usual_is_learnt() -> None:
    watch = MetricWatch(5, 1000.0)
    for at in range(1000):
        watch.observe(float(at), 1e9 * at)
        assert watch.learning and watch.change is None
    for at in range(1000, 1032):
        watch.observe(float(at), 1.0)
    assert not watch.learning


def test_samples_that_say_nothing_are_counted_and_left_out() -> None:
    plain, odd = MetricWatch(20), MetricWatch(20)
    for at in range(60):
        value = 10.0 + 0.1 * (at % 4) + (3.0 if at >= 40 else 0.0)
        plain.observe(float(at), value)
        odd.observe(float(at), value)
        for at_s, wrong in ((at + 0.5, math.nan), (at + 0.5, math.inf), (at - 1.0, 1e9), (math.nan, 1.0)):
            odd.observe(at_s, wrong)
    assert odd.change == plain.change is not None and odd.ignored == 240


def test_of_a_metric_that_never_changes_a_little_more_is_usual_too() -> None:
    watch = MetricWatch(20)
    for at in range(200):
        watch.observe(float(at), LEVEL if at < 100 else LEVEL * 1.02)
        assert watch.change is None
    for at in range(200, 240):
        watch.observe(float(at), LEVEL * 1.4)
    assert watch.change is not None


def test_the_memory_of_a_watch_is_bounded() -> None:
    watch, at = MetricWatch(100_000), 0
    while watch.learning:
        watch.observe(float(at), float(at % 7))
        assert len(watch._learnt) <= policy.LEARNT_MAX and len(watch._block) <= watch._size
        at += 1
    assert 100_000 <= at <= 100_000 + watch._size <= 101_024
