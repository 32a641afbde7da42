"""Compare each worker's iterations with those of the others at about the same time.

What slows everybody at once cancels out. Workers need not have the same number of iterations, nor have them
at the same times. The durations must be a worker's own: where every iteration ends with a collective, record
the time until the collective begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.iterations.levels import SMOOTHED
from controlplane.analysis.iterations.policy import CELLS_MAX, GAP_INTERVALS, GRID_MAX
from controlplane.analysis.robust import others_median, running_median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from controlplane.analysis.robust import Floats

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Iterations:
    """One worker's iterations in the order of their times. `time`: in any unit; `duration`: all above 0."""

    worker: int | str
    time: Floats
    duration: Floats

    def distinct(self) -> Iterations:
        """Without iterations that are there twice, the same in time and duration."""
        rows = np.unique(np.stack([self.time, self.duration]), axis=1)
        return Iterations(self.worker, rows[0], rows[1])

    def corrected(self, rows: Ints, log_ratio: float) -> Iterations:
        """Return the worker as if these iterations had taken less time, by the factor exp(`log_ratio`)."""
        duration = self.duration.copy()
        duration[rows] /= np.exp(log_ratio)
        return Iterations(self.worker, self.time, duration)


@dataclass(frozen=True, slots=True)
class Pace:
    """The logarithms of the ratios of a worker's durations to the median of the others at the same time.

    `rows`: the indices of its iterations for which there are others to compare with."""

    rows: Ints
    time: Floats
    log_ratio: Floats


def paces(workers: Sequence[Iterations]) -> list[Pace]:
    """The pace of each worker, in the same order."""
    logs = [np.log(each.duration) for each in workers]
    times = np.concatenate([each.time for each in workers])
    points = min(GRID_MAX, CELLS_MAX // len(workers), max(len(each.time) for each in workers))
    grid = np.linspace(times.min(), times.max(), points)
    typical = [_at(grid, each.time, log) for each, log in zip(workers, logs, strict=True)]
    others = others_median(np.array(typical), axis=0)
    found = []
    for each, log, peers in zip(workers, logs, others, strict=True):
        ratio = log - peers[_nearest(grid, each.time)]
        rows = np.flatnonzero(~np.isnan(ratio))
        found.append(Pace(rows, each.time[rows], ratio[rows]))
    return found


def _at(grid: Floats, time: Floats, log: Floats) -> Floats:
    """A worker's typical duration at each point of the grid; NaN where it has no iteration nearby."""
    nearest = _nearest(time, grid)
    usual = float(np.median(np.diff(time))) if len(time) > 1 else 0.0
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 0.0
    near = np.abs(time[nearest] - grid) <= max(GAP_INTERVALS * usual, step)
    return np.where(near, running_median(log, SMOOTHED)[nearest], np.nan)


def _nearest(ascending: Floats, wanted: Floats) -> Ints:
    """The index of the nearest value for each of those wanted."""
    right = np.clip(np.searchsorted(ascending, wanted), 1, max(1, len(ascending) - 1))
    right = np.minimum(right, len(ascending) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(wanted - ascending[left]) <= np.abs(ascending[right] - wanted), left, right)
