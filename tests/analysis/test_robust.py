"""Medians of the others, and around each value, against the plain way to take them."""

from __future__ import annotations

import numpy as np
import pytest

from controlplane.analysis.robust import low_median, often, others_median, running_median, spread


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_the_median_of_the_others_is_that_without_the_value_itself(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(3, count, 2))
    values[1, 0, 0] = np.nan
    found = others_median(values, axis=1)
    for at in range(count):
        for plane, column in np.ndindex(3, 2):
            rest = np.delete(values[plane, :, column], at)
            rest = rest[~np.isnan(rest)]
            expected = np.median(rest) if rest.size else np.nan
            assert found[plane, at, column] == pytest.approx(expected, nan_ok=True)


def test_alone_there_is_no_median_of_others() -> None:
    assert np.isnan(others_median(np.array([[1.0], [np.nan]]), axis=1)).all()
    assert np.isnan(others_median(np.array([[1.0, np.nan]]), axis=1)).tolist() == [[True, False]]


def test_the_low_median_of_two_is_the_lower_one() -> None:
    assert low_median(np.array([3.0, 1.0]), axis=0) == 1.0
    assert low_median(np.array([3.0, 1.0, 2.0]), axis=0) == 2.0


def test_a_running_median_drops_spikes_and_keeps_steps() -> None:
    values = np.array([1.0] * 6 + [9.0] + [1.0] * 5 + [2.0] * 8)
    found = running_median(values, 5)
    assert found.tolist() == [1.0] * 12 + [2.0] * 8
    assert running_median(np.array([4.0, 5.0]), 5).tolist() == [4.0, 5.0]


def test_a_few_wild_values_do_not_move_the_spread() -> None:
    values = np.random.default_rng(1).normal(scale=2.0, size=10_000)
    values[:100] = 1e9
    assert spread(values) == pytest.approx(2.0, rel=0.05)
    assert spread(values[:0]) == 0.0


def test_more_evidence_is_surer() -> None:
    assert often(1, 1) < often(10, 10) < 1.0
    assert often(0, 10) < 0.1
