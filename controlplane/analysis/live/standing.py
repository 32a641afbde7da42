"""Say who stands out among peers: steadily, by more than a limit, and by more than all of them scatter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import median_of_rows
from controlplane.analysis.robust import NORMAL, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.live.table import Bools, Ints
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class Standing:
    """How each rank has stood against its peers in the newest rows. NaN: too few rows."""

    level: Floats  # the median over the rows
    above: Floats  # the share of the rows in which it exceeds half of the limit
    unsure: Floats  # the standard error of `level`
    limit: Floats  # what is too much, for each rank
    still: Bools  # whether the newest row exceeds half of the limit too; True where it is not known

    @property
    def lasting(self) -> Bools:
        """Who exceeds half of the limit in most rows."""
        return self.above >= policy.SUSTAINED_RATIO

    def out(self, group: Ints) -> Ints:
        """Those of a group of peers that stand out in it, and still do: what has passed opens no finding."""
        level = self.level[group]
        if np.isnan(level).all():
            return group[:0]
        needed = np.maximum(self.limit[group], policy.SPREADS * scatter(level, self.lasting[group]))
        needed = np.maximum(needed, policy.NOISE_SPREADS * self.unsure[group])
        with np.errstate(invalid="ignore"):
            return group[self.lasting[group] & self.still[group] & (level >= needed)]


def standing(rows: NDArray[np.float32], limit: float, noise: Floats | None = None) -> Standing:
    """Judge ranks by their newest rows. `limit`: what is too much; `noise`: how much single rows scattered
    over minutes (NaN: not known): these few may have scattered less by chance."""
    ranks = rows.shape[1]
    level, count = median_of_rows(rows)
    with np.errstate(invalid="ignore"):
        above = (rows > 0.5 * limit).sum(axis=0) / np.maximum(count, 1)
        apart, _ = median_of_rows(np.abs(rows - level.astype(np.float32)))
        still = ~(rows[-1] <= 0.5 * limit) if len(rows) else np.ones(ranks, dtype=bool)
    enough = count >= policy.LEAST
    common = float(np.median(apart[enough])) if enough.any() else 0.0
    # 1.25: by so much more than a mean does a median scatter
    scattered = NORMAL * np.maximum(apart, common)
    if noise is not None:
        scattered = np.fmax(scattered, noise)
    unsure = 1.25 * scattered / np.sqrt(np.maximum(count, 1))
    return Standing(
        np.where(enough, level, np.nan),
        np.where(enough, above, 0.0),
        unsure,
        np.full(ranks, limit),
        still,
    )


def scatter(level: Floats, high: Bools) -> float:
    """How far the levels of peers lie apart, as a standard deviation. NaN is left out.

    Where many are high, only those below the lower median are counted: they are not the ones in question."""
    known = ~np.isnan(level)
    ascending = np.sort(level[known])
    middle = ascending[(len(ascending) - 1) // 2]
    below = float(NORMAL * np.median(middle - ascending[ascending <= middle]))
    if 4 * high[known].sum() > len(ascending):
        return below
    return max(below, spread(ascending))


def mixed(first: Standing, second: Standing, chosen: Bools) -> Standing:
    """The second where it is chosen, else the first."""
    return Standing(
        np.where(chosen, second.level, first.level),
        np.where(chosen, second.above, first.above),
        np.where(chosen, second.unsure, first.unsure),
        np.where(chosen, second.limit, first.limit),
        np.where(chosen, second.still, first.still),
    )


def times(log_ratio: float) -> float:
    """Return the ratio of a logarithm."""
    return math.exp(log_ratio)
