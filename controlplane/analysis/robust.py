"""Statistics that a few wild values do not move. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NORMAL = 1.4826
"""Times the median absolute deviation: the standard deviation of normal values."""


def spread(values: Floats) -> float:
    """The standard deviation, from the median absolute deviation. 0 of no values."""
    if not values.size:
        return 0.0
    return float(NORMAL * np.median(np.abs(values - np.median(values))))


def others_median(values: Floats, axis: int) -> Floats:
    """For each value, the median of the others along `axis`. NaN where there are no others."""
    rows = np.moveaxis(values, axis, -1)
    count = rows.shape[-1]
    if count < 2:
        return np.full_like(values, np.nan)
    order = np.argsort(rows, axis=-1, kind="stable")
    place = np.argsort(order, axis=-1, kind="stable")
    ascending = np.take_along_axis(rows, order, axis=-1)

    def left(at: int) -> Floats:
        """The value at this place once the row's own value is gone."""
        return np.take_along_axis(ascending, np.where(place <= at, at + 1, at), axis=-1)

    middle = 0.5 * (left((count - 2) // 2) + left((count - 1) // 2))
    return np.moveaxis(middle, -1, axis)


def low_median(values: Floats, axis: int) -> Floats:
    """The median along `axis`, the lower one of two: not moved by one of two values."""
    ascending = np.sort(values, axis=axis)
    found: Floats = np.take(ascending, (values.shape[axis] - 1) // 2, axis=axis)
    return found


def often(times: int, of: int) -> float:
    """How sure it is that something holds that held so many times (rule of succession), 0 to 1."""
    return (times + 1) / (of + 2)
