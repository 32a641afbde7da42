"""Draw resamples of node-days in blocks, for confidence intervals (bootstrap).

Rows of one node belong together, and so do rows of neighbouring days, since their labels overlap and faults
come in bursts. Drawing whole nodes keeps the one, drawing whole weeks the other; neither keeps both, so both
intervals are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.prediction import policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controlplane.analysis.prediction.history import Ints
    from controlplane.analysis.robust import Floats

    Interval = tuple[float, float]


def weights(block: Ints, chance: np.random.Generator) -> Iterator[Floats]:
    """How often each row is drawn, in one resample of blocks after the other. `block`: of each row."""
    labels, index = np.unique(block, return_inverse=True)
    for _ in range(policy.RESAMPLES):
        drawn = np.bincount(chance.integers(len(labels), size=len(labels)), minlength=len(labels))
        yield drawn[index].astype(np.float64)


def intervals(
    score: Callable[[Floats], Mapping[str, float]], block: Ints, chance: np.random.Generator
) -> dict[str, Interval | None]:
    """The interval of each score over the resamples. None where a score is not known in most of them."""
    rows = [score(each) for each in weights(block, chance)]
    return {name: _interval(np.array([row[name] for row in rows])) for name in rows[0]}


def _interval(values: Floats) -> Interval | None:
    known = values[np.isfinite(values)]
    if 2 * len(known) < len(values):
        return None
    edge = 50.0 * (1.0 - policy.CONFIDENCE)
    low, high = np.percentile(known, (edge, 100.0 - edge))
    return float(low), float(high)
