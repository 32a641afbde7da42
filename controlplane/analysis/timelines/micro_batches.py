"""Say when micro-batches of uneven length are what makes steps long: nobody is to blame for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import spread
from controlplane.analysis.steps.operations import BACKWARD, FORWARD
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Part
from controlplane.core.state.findings import Finding, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.analysis.steps.what_if import WhatIf
    from controlplane.analysis.timelines.computes import Computes

_ADVICE = (
    "Balance micro-batches by the cost of their sequences (attention is quadratic), or pack to equal length."
)


def uneven_micro_batches(what_if: WhatIf, computes: Computes, found: Sequence[Part]) -> Iterator[Part]:
    """Blame micro-batches if long forward means long backward too, and fixing `found` leaves a slowdown."""
    fixed = np.zeros((1, 1, 1), dtype=bool)
    for part in found:
        fixed = fixed | part.mask
    rest_s = what_if.fixed_s(fixed)
    if rest_s < policy.UNEVEN_COST_RATIO * what_if.ideal_step_s:
        return
    row = computes.of_micro_batch()
    pairs = [(unit, unit._replace(kind=BACKWARD)) for unit in computes.units if unit.kind == FORWARD]
    both = [(row[forward], row[backward]) for forward, backward in pairs if backward in row]
    if not both:
        return
    forward, backward = (np.concatenate([pair[way].ravel() for pair in both]) for way in (0, 1))
    wide = min(spread(forward), spread(backward))
    if wide < policy.UNEVEN_SPREAD:
        return
    correlation = float(np.corrcoef(forward, backward)[0, 1])
    if correlation < policy.UNEVEN_CORRELATION:
        return
    short, long = np.exp(np.quantile(forward, (0.05, 0.95)))
    rest = rest_s / what_if.ideal_step_s
    finding = Finding(
        "uneven_micro_batches",
        policy.level(rest),
        "the job's data",
        f"micro-batches take {short:.2f} to {long:.2f} times the typical time, forward and backward alike "
        f"(correlation {correlation:.2f}), on whichever worker; with even ones a step could be {rest:.2f} "
        "times as fast",
        place=(("dp_rank", None), ("stage", None), ("rank", None)),
        confidence=correlation,
        evidence=(
            ("forward_backward_correlation_ratio", correlation),
            ("spread_ratio", wide),
            ("slowdown_rest_ratio", rest),
        ),
        recommendations=(Recommendation(_ADVICE),),
    )
    yield Part(finding, rest, fixed)
