"""Remember the level of each rank minute by minute: the newest ones, and what was usual before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import Rows, SpacedSamples, median_of_rows
from controlplane.analysis.robust import NORMAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.robust import Floats


class LevelHistory:
    """Blocks of rows, each as its median, which bursts of a third of a block do not move.

    The newest blocks are the evidence. Those before them, back to the beginning, say what is usual; so what
    has changed lately is compared with a time when it was not there yet."""

    def __init__(self, ranks: int) -> None:
        self.blocks = Rows(policy.LASTING_BLOCKS, ranks)
        self._apart = Rows(policy.LASTING_BLOCKS, ranks)
        self._before = SpacedSamples(policy.LASTING_BEFORE, ranks)
        self.usual: Floats = np.full(ranks, np.nan)
        self.noise: Floats = np.full(ranks, np.nan)
        """How much each rank's single rows scatter within blocks, as a standard deviation; of ranks that
        happened to scatter little, what a typical one does."""

    def add(self, rows: NDArray[np.float32], ended_s: float, step: float) -> None:
        """Take in the rows of one block, `policy.RECENT` of them."""
        if self.blocks.count >= policy.LASTING_BLOCKS:
            oldest = self.blocks.newest(policy.LASTING_BLOCKS)[0].astype(np.float64)
            if self._before.add(ended_s, step, oldest):
                self.usual = _low(self._before.values)
        level, count = median_of_rows(rows)
        level = np.where(2 * count > len(rows), level, np.nan)
        apart, _ = median_of_rows(np.abs(rows - level.astype(np.float32)))
        self.blocks.add(level)
        self._apart.add(apart)
        self.noise = _noise(self._apart.newest(policy.LASTING_BLOCKS).astype(np.float64))

    @property
    def full(self) -> bool:
        """Whether there is enough evidence."""
        return self.blocks.count >= policy.LASTING_BLOCKS

    @property
    def known_before(self) -> bool:
        """Whether there are enough blocks before the newest ones to say what is usual."""
        return len(self._before.values) >= policy.LASTING_BEFORE_LEAST

    def unsure(self, *, against_before: bool) -> Floats:
        """The standard error of the median of the newest blocks; `against_before`: less what is usual."""
        rows = policy.LASTING_BLOCKS * policy.RECENT
        share = 1.0 / rows
        if against_before:  # a lower quartile scatters by a third more than a median
            share += 1.75 / (max(1, len(self._before.values)) * policy.RECENT)
        found: Floats = 1.25 * self.noise * np.sqrt(share)
        return found


def _noise(apart: Floats) -> Floats:
    """What rows scatter, from their median absolute deviations in blocks."""
    known = ~np.isnan(apart)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, apart, 0.0).sum(axis=0) / known.sum(axis=0)
    typical = float(np.median(mean[~np.isnan(mean)])) if (~np.isnan(mean)).any() else 0.0
    found: Floats = NORMAL * policy.LASTING_SMALL_BLOCK * np.fmax(mean, typical)
    return found


def _low(values: Floats) -> Floats:
    """The lower quartile of the samples of each rank.

    A fault that began in the midst of them moves a median soon: of this, three quarters have to be later."""
    count = (~np.isnan(values)).sum(axis=0)
    at = np.maximum(count - 1, 0) // 4
    chosen = np.take_along_axis(np.sort(values, axis=0), at[None, :], axis=0)[0]  # NaN comes last
    found: Floats = np.where(count >= policy.LASTING_BEFORE_LEAST, chosen, np.nan)
    return found
