"""Find work that differs from step to step: sequences of uneven length. Nobody in particular is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.causes import ON_CPU
from controlplane.analysis.live.history import low_median, median_of_rows
from controlplane.analysis.live.resources.memory import SPENT
from controlplane.analysis.robust import NORMAL
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.robust import Floats

DECLARED = ("tokens", "samples")
"""What scripts may declare of their work."""


def uneven_work(s: LiveSituation) -> Iterator[Finding]:
    """Work that differs each time, in step with tokens or CPU time, while others wait for it."""
    ratio = s.memory.aligned.newest(policy.RECENT).astype(np.float64)
    if len(ratio) < policy.RECENT or (~np.isnan(ratio)).sum() < policy.UNEVEN_LEAST:
        return
    level, _ = median_of_rows(ratio.astype(np.float32))
    known = level[~np.isnan(level)]
    lasting = float(NORMAL * np.median(np.abs(known - np.median(known))))
    passing = float(NORMAL * np.nanmedian(np.abs(ratio - level)))
    spread = s.step_spread
    if spread < policy.UNEVEN_SPREAD or lasting > policy.UNEVEN_LASTING * passing * 2.0:
        return
    measure, correlation = _closest(s, ratio)
    wait = _waiting(s)
    if correlation < policy.UNEVEN_CORRELATION or wait < policy.UNEVEN_WAIT:
        return
    words = "CPU time" if measure == "cpu" else measure
    yield Finding(
        "uneven_work",
        Level.DEGRADED,
        "",
        f"the work of a rank differs by about {spread:.0%} from step to step, in step with its {words} "
        f"(correlation {correlation:.2f}), and another rank is the slowest each time: sequences have uneven "
        f"lengths; a typical rank waits {wait:.0%} of a step for others",
        confidence=min(1.0, correlation),
        evidence=(
            ("step_spread_ratio", spread),
            ("lasting_spread_ratio", lasting),
            ("correlation", correlation),
            ("wait_share_ratio", wait),
            ("measure", words),
        ),
        recommendations=(
            Recommendation(
                f"Sort or pack sequences so that all ranks get the same {words} in a step.",
                wait,
                Effort.MEDIUM,
            ),
            Recommendation(
                "Accumulate gradients over twice as many micro-batches: lengths that are drawn independently "
                f"then even out, from {spread:.0%} to about {spread / 2**0.5:.0%}.",
                None,  # whether they are is not measured
                Effort.LOW,
            ),
        ),
    )


def _closest(s: LiveSituation, ratio: Floats) -> tuple[str, float]:
    """The measure that goes together with the work most closely, and how closely: 0 to 1."""
    rows = s.memory.spent.newest(policy.RECENT)
    best = ("cpu", 0.0)
    for name in _measures(s):
        column = rows[:, SPENT.index(name)].astype(np.float64)
        with np.errstate(all="ignore"):
            other = np.log(np.where(column > 0, column, np.nan))
        known = ~np.isnan(other) & ~np.isnan(ratio)
        if known.sum() < policy.UNEVEN_LEAST:
            continue
        found = _correlation(_centred(ratio, known), _centred(other, known))
        if found > best[1]:
            best = (name, found)
    return best


def _measures(s: LiveSituation) -> tuple[str, ...]:
    """By what more work is told from slower work: what is declared, else CPU time where CPUs do the work."""
    declared = tuple(name for name in DECLARED if (s.spent[name] > 0).any())
    if declared:
        return declared
    with np.errstate(all="ignore"):
        share = low_median(s.spent["cpu"] / s.work_s(*ON_CPU))
    return ("cpu",) if share >= policy.CPU_SHARE else ()


def _centred(values: Floats, known: np.ndarray) -> Floats:
    """The values less the mean of their row and that of their rank, as one column."""
    kept = np.where(known, values, np.nan)
    with np.errstate(invalid="ignore"):
        count = known.sum(axis=1, keepdims=True)
        kept = kept - np.where(known, kept, 0.0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
        count = known.sum(axis=0, keepdims=True)
        kept = kept - np.where(known, kept, 0.0).sum(axis=0, keepdims=True) / np.maximum(count, 1)
    found: Floats = kept[known]
    return found


def _correlation(first: Floats, second: Floats) -> float:
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


def _waiting(s: LiveSituation) -> float:
    """How long a typical rank waits for whoever is the slowest, as a share of a step."""
    waits = s.spent["communication"]
    known = waits[~np.isnan(waits)]
    return float(np.median(known) - known.min() + s.jitter_s) / s.step_s
