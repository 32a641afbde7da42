"""The curves of a job: bounded, and never drawn through what is not a number."""

from __future__ import annotations

import math

import pytest

from controlplane.analysis.live.curves import POINTS_MAX, Curve


def test_a_short_curve_has_every_value() -> None:
    curve = Curve()
    for number in range(10):
        curve.add(5.0 * number, 2.0 * number)
    assert curve.row() == {
        "at_s": [5.0 * number for number in range(10)],
        "values": [2.0 * number for number in range(10)],
        "values_each": 1,
    }


def test_a_full_curve_is_thinned_and_covers_all_of_its_time() -> None:
    curve = Curve(points_max=8)
    for number in range(21):
        curve.add(float(number), float(number))
    row = curve.row()
    assert row["values_each"] == 4
    assert row["at_s"] == [3.0, 7.0, 11.0, 15.0, 19.0, 20.0]
    assert row["values"] == [1.5, 5.5, 9.5, 13.5, 17.5, 20.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_mean_goes_over_a_value_that_is_not_finite(bad: float) -> None:
    curve = Curve(points_max=4)
    for number, value in enumerate((1.0, 1.0, bad, 1.0, 1.0, 1.0)):
        curve.add(float(number), value)
    assert curve.row()["values"] == [1.0, None, 1.0]


def test_the_mean_of_the_largest_numbers_is_finite() -> None:
    curve = Curve(points_max=2)
    for number in range(4):
        curve.add(float(number), 1.7e308)
    assert curve.row()["values"] == [1.7e308]


def test_a_curve_of_years_is_as_short_as_one_of_a_day() -> None:
    curve = Curve()
    for number in range(200_000):
        curve.add(5.0 * number, 1.0)
    row = curve.row()
    assert POINTS_MAX / 2 <= len(row["at_s"]) <= POINTS_MAX and set(row["values"]) == {1.0}
    assert row["at_s"][-1] == 5.0 * 199_999
