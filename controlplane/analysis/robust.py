"""Statistics that a few wild values do not move. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NORMAL = 1.4826
"""For normally distributed values, the median absolute deviation times this is the standard deviation."""


def spread(values: Floats) -> float:
    """The standard deviation, from the median absolute deviation. 0 of no values."""
    if not values.size:
        return 0.0
    return float(NORMAL * np.median(np.abs(values - np.median(values))))


def others_median(values: Floats, axis: int) -> Floats:
    """For each value, the median of the others along `axis`, those that are NaN left out. NaN where there are
    no others."""
    rows = np.moveaxis(values, axis, -1)
    order = np.argsort(rows, axis=-1, kind="stable")  # NaN comes last
    place = np.argsort(order, axis=-1, kind="stable")
    ascending = np.take_along_axis(rows, order, axis=-1)
    valid = ~np.isnan(rows)
    others = valid.sum(axis=-1, keepdims=True) - valid
    most = rows.shape[-1] - 1

    def left(at: NDArray[np.int64]) -> Floats:
        """Return, for each value of a row, the value at this place of the row without that value."""
        at = np.where(valid & (place <= at), at + 1, at)
        return np.take_along_axis(ascending, np.clip(at, 0, most), axis=-1)

    middle = 0.5 * (left((others - 1) // 2) + left(others // 2))
    return np.moveaxis(np.where(others > 0, middle, np.nan), -1, axis)


def running_median(values: Floats, width: int) -> Floats:
    """The median of the `width` (odd) values around each. Steps stay where they are.

    At the ends the outermost whole window counts."""
    width = min(width, len(values) - 1 + len(values) % 2)
    if width < 3:
        return values
    windows = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=-1)
    found: Floats = np.pad(windows, width // 2, mode="edge")
    return found


def low_median(values: Floats, axis: int) -> Floats:
    """Return the median along `axis`; of an even number of values, the lower of the two in the middle."""
    ascending = np.sort(values, axis=axis)
    found: Floats = np.take(ascending, (values.shape[axis] - 1) // 2, axis=axis)
    return found


def often(times: int, of: int) -> float:
    """Return how sure it is that something holds that held in `times` of `of` cases, by the rule of
    succession: 0 to 1."""
    return (times + 1) / (of + 2)
