"""Keep the newest rows of columns, in memory that does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.robust import Floats


class Rows:
    """The newest rows of a column; a row has one number per rank, or a block of them."""

    def __init__(self, size: int, *shape: int) -> None:
        self._ring: NDArray[np.float32] = np.full((size, *shape), np.nan, dtype=np.float32)
        self._next = 0
        self.count = 0  # of all rows ever added

    def add(self, row: Floats) -> None:
        """Add a row; the oldest goes when there is no more room."""
        self._ring[self._next] = row
        self._next = (self._next + 1) % len(self._ring)
        self.count += 1

    def newest(self, count: int) -> NDArray[np.float32]:
        """The newest rows, oldest first: fewer when there are not so many."""
        count = min(count, self.count, len(self._ring))
        chosen = (self._next - count + np.arange(count)) % len(self._ring)
        return self._ring[chosen]


class SpacedSamples:
    """SpacedSamples of a column from the beginning until now, ever further apart: at most `size` of them.

    A rank that is not known in a row has not shrunk: for what a typical one has grown it counts as it was
    when it was last known. In a sample it counts as in one of the rows that were left out for that one."""

    def __init__(self, size: int, ranks: int) -> None:
        self._values: NDArray[np.float64] = np.full((size, ranks), np.nan)
        self.first: Floats = np.full(ranks, np.nan)
        """The first value of each rank that was known."""
        self.newest: Floats = np.full(ranks, np.nan)
        """The newest."""
        self._left_out: Floats = np.full(ranks, np.nan)  # the newest of the rows since the last sample
        self._at: list[tuple[float, float, float]] = []  # (s, step, typical growth)
        self._every = 1
        self._skipped = 0

    def add(self, time_s: float, step: float, row: Floats) -> bool:
        """Add a row if it is due. Return whether it was."""
        self.first = np.where(np.isnan(self.first), row, self.first)
        self.newest = np.where(np.isnan(row), self.newest, row)
        self._left_out = np.where(np.isnan(row), self._left_out, row)
        self._skipped += 1
        if self._skipped < self._every:
            return False
        if len(self._at) == len(self._values):
            self._thin_out()
        self._values[len(self._at)], self._left_out = self._left_out, np.full(len(row), np.nan)
        self._skipped = 0
        self._at.append((time_s, step, low_median(self.newest - self.first)))
        return True

    def _thin_out(self) -> None:
        kept, dropped = self._values[::2], self._values[1::2]
        both = kept[: len(dropped)]
        both[:] = np.where(np.isnan(both), dropped, both)
        self._values[: len(kept)] = kept.copy()
        self._at = self._at[::2]
        self._every *= 2

    @property
    def times(self) -> Floats:
        """When each sample was taken (s), and in which step: (sample, 2)."""
        return np.array(self._at).reshape(-1, 3)[:, :2]

    @property
    def growth(self) -> Floats:
        """By how much a typical rank has grown from the first sample to each."""
        return np.array([typical for _, _, typical in self._at])

    @property
    def values(self) -> Floats:
        """The samples, oldest first: (sample, rank)."""
        return self._values[: len(self._at)]


def median_of_rows(rows: NDArray[np.float32]) -> tuple[Floats, NDArray[np.int64]]:
    """The median over the rows, NaN left out, and how many there were; NaN where there are none."""
    count = (~np.isnan(rows)).sum(axis=0)
    ascending = np.sort(rows, axis=0)  # NaN comes last
    at = np.stack([np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(rows) - 1)])
    both = np.take_along_axis(ascending, at, axis=0).astype(np.float64)
    return np.where(count > 0, both.mean(axis=0), np.nan), count


def mean_of_rows(rows: NDArray[np.float32]) -> Floats:
    """The mean over the rows, NaN left out; NaN where there are none."""
    known = ~np.isnan(rows)
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(known, rows, 0.0).sum(axis=0, dtype=np.float64) / known.sum(axis=0)
    return found


def low_median(values: Floats) -> float:
    """The lower median of the values that are not NaN; NaN when there are none.

    Where half of the ranks are slow it is that of the others."""
    known = values[~np.isnan(values)]
    if not known.size:
        return float("nan")
    at = (known.size - 1) // 2
    return float(np.partition(known, at)[at])
