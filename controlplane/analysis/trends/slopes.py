"""Measure how fast something grows, and when it reaches a limit, in spite of outliers.

Slopes by Theil and Sen: the median of the slopes between all pairs of samples. Its interval follows Sen
("Estimates of the regression coefficient based on Kendall's tau", J. Am. Stat. Assoc. 63, 1968). It holds
for independent samples; where neighbours are alike, it is too narrow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.trends import policy

if TYPE_CHECKING:
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per unit of `at`, and the interval that holds it (95 %)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Reached:
    """When a limit is reached: in the units of `at`, the likely moment and the interval around it.

    `latest` is infinite where the growth may be chance."""

    likely: float
    earliest: float
    latest: float


def theil_sen(at: Floats, values: Floats) -> float:
    """The median of the slopes between all pairs of samples. There are at least two, at different times."""
    return float(np.median(_slopes(at, values)))


def slope(at: Floats, values: Floats) -> Slope:
    """The slope with its interval. There are at least two samples, at different times."""
    ascending = np.sort(_slopes(at, values))
    count, pairs = len(at), len(ascending)
    apart = policy.SLOPE_CONFIDENCE_Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    low = max(0, round((pairs - apart) / 2.0) - 1)
    high = min(pairs - 1, round((pairs + apart) / 2.0))
    return Slope(float(np.median(ascending)), float(ascending[low]), float(ascending[high]))


def _slopes(at: Floats, values: Floats) -> Floats:
    first, second = np.triu_indices(len(at), 1)
    found: Floats = (values[second] - values[first]) / (at[second] - at[first])
    return found


def steady_growth(at: Floats, values: Floats, least: float) -> float | None:
    """The slope of values that grow steadily. None where they grow less and less, or no more than by chance,
    or by `least` at most from the first third to the last. There are at least six samples, by time."""
    thirds, half = len(values) // 3, len(values) // 2
    if float(np.median(values[-thirds:]) - np.median(values[:thirds])) <= least:
        return None
    older, newer = theil_sen(at[:half], values[:half]), theil_sen(at[half:], values[half:])
    whole = theil_sen(at, values)
    if whole <= 0 or newer < policy.STEADY_RATIO * older or newer < policy.STEADY_RATIO * whole:
        return None
    residue = values - values[0] - whole * (at - at[0])
    scatter = float(np.median(np.abs(residue - np.median(residue))))
    return whole if whole * (at[-1] - at[0]) >= policy.RISE_SPREADS * scatter else None


def reached(at: Floats, values: Floats, limit: float) -> Reached | None:
    """When values that grow, or fall, towards a limit reach it; None: they do not move towards it.

    Counted from the newest sample, at the level of the line through all of them."""
    found = slope(at, values)
    level = float(np.median(values + found.value * (at[-1] - at)))
    left = limit - level
    if left * found.value <= 0:
        return None
    fast, slow = (found.high, found.low) if found.value > 0 else (found.low, found.high)
    latest = left / slow if left * slow > 0 else math.inf
    now = float(at[-1])
    return Reached(now + left / found.value, now + left / fast, now + latest)
