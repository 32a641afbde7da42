"""Cut a noisy series into pieces of one level each: where did it change, and to what?

Optimal partitioning: of all ways to cut, take the one whose squared distances from the pieces' means, plus a
penalty per piece, are least. A running median takes spikes out before, and leaves steps where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import running_median, spread

if TYPE_CHECKING:
    from controlplane.analysis.robust import Floats

SMOOTHED = 5
"""Width of the running median: what lasts for two samples is a spike."""
PENALTY = 6.0
"""Each piece costs this times the variance times ln(n). Schwarz's criterion for independent noise is 2. More
is needed, because a running median makes neighbours alike, and because levels drift."""
BLOCKS = 512
"""A longer series is cut at blocks of samples first, then at the sample within them."""
LEAST_NOISE = 1e-3
"""A series without any noise is taken to have this much, so that rounding makes no levels."""


@dataclass(frozen=True, slots=True)
class LevelPiece:
    """Samples from `begin` up to, not including, `end`; `level` is their median."""

    begin: int
    end: int
    level: float

    @property
    def count(self) -> int:
        """How many samples it has."""
        return self.end - self.begin


def noise(values: Floats) -> float:
    """The standard deviation around the level, whatever the level does: from neighbours' differences."""
    return max(LEAST_NOISE, spread(np.diff(values)) / math.sqrt(2.0))


def pieces(values: Floats) -> list[LevelPiece]:
    """The pieces of a series, in order. The series is not empty."""
    smooth = running_median(values, SMOOTHED)
    width = math.ceil(len(smooth) / BLOCKS)
    starts = np.arange(0, len(smooth), width)
    weights = np.diff(np.append(starts, len(smooth))).astype(np.float64)
    blocks = np.add.reduceat(smooth, starts) / weights
    cuts = _cuts(blocks, weights, PENALTY * noise(values) ** 2 * math.log(len(values) + 1.0))
    edges = [int(starts[cut]) for cut in cuts]
    edges = [_nearby(smooth, edge, width) if edge else 0 for edge in edges]
    ends = [*edges[1:], len(values)]
    found = [(begin, end) for begin, end in zip(edges, ends, strict=True) if end > begin]
    return [LevelPiece(begin, end, float(np.median(values[begin:end]))) for begin, end in found]


def _cuts(blocks: Floats, weights: Floats, penalty: float) -> list[int]:
    """Where the pieces begin."""
    centred = blocks - np.average(blocks, weights=weights)
    count = np.concatenate([[0.0], np.cumsum(weights)])
    total = np.concatenate([[0.0], np.cumsum(weights * centred)])
    square = np.concatenate([[0.0], np.cumsum(weights * centred**2)])
    best = np.zeros(len(blocks) + 1)
    came_from = np.zeros(len(blocks) + 1, dtype=np.int64)
    for end in range(1, len(blocks) + 1):
        inside = square[end] - square[:end] - (total[end] - total[:end]) ** 2 / (count[end] - count[:end])
        cost = best[:end] + inside + penalty
        came_from[end] = np.argmin(cost)
        best[end] = cost[came_from[end]]
    cuts = [len(blocks)]
    while cuts[-1]:
        cuts.append(int(came_from[cuts[-1]]))
    return cuts[:0:-1]


def _nearby(smooth: Floats, edge: int, width: int) -> int:
    """The sample near a block's edge at which two levels fit best."""
    begin, end = max(0, edge - 2 * width), min(len(smooth), edge + 2 * width)
    if width == 1 or end - begin < 2:
        return edge
    window = smooth[begin:end] - smooth[begin:end].mean()
    total, count = np.cumsum(window), np.arange(1.0, len(window) + 1.0)
    # the greater this is, the smaller are the squared distances from the means of both sides
    fits = total[:-1] ** 2 / count[:-1] + (total[-1] - total[:-1]) ** 2 / (count[-1] - count[:-1])
    return begin + 1 + int(np.argmax(fits))
