"""Find stages whose collectives between replicas are slow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import often, others_median
from controlplane.analysis.steps.operations import GATHER, SCATTER
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.links import LEAST_S
from controlplane.analysis.timelines.subjects import Charge, Part, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.robust import Floats
    from controlplane.analysis.steps.what_if import WhatIf

_ADVICE = (
    "Look at the NICs and switches of this stage's hosts; a stage that only holds more weights is no fault."
)


def slow_collectives(what_if: WhatIf) -> Iterator[Part]:
    """Stages whose parameters or gradients travel far longer than those of other stages, once all are there.

    A stage that holds more weights, an embedding perhaps, has both travel longer, by the same ratio. So
    a stage is reported only when both are very slow, or one is much slower than the other."""
    kinds = np.array([operation.kind for operation in what_if.steps.operations])
    found = [_against_stages(what_if, kinds, kind) for kind in (GATHER, SCATTER)]
    ratios = np.array([ratio for ratio in found if ratio is not None])  # (kind, stage, step)
    if not len(ratios) or ratios.shape[2] < policy.COLLECTIVE_STEPS:
        return
    worst, least = ratios.max(axis=0), ratios.min(axis=0)
    unlike = (worst > math.log(policy.LINK_RATIO)) & (worst - least > math.log(policy.LINK_RATIO))
    slow = unlike | (least > math.log(policy.COLLECTIVE_RATIO))
    for stage in map(int, np.flatnonzero(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO)):
        times = math.exp(float(np.median(worst[stage])))
        certainty = 1.0 if unlike[stage].mean() >= policy.STAGE_STEPS_RATIO else policy.UNCERTAIN
        charge = Charge(
            "slow_link",
            named(what_if.steps, stage=stage),
            (np.isin(kinds, (GATHER, SCATTER)) & (what_if.stage == stage))[:, None, None],
            f"its collectives between replicas take {times:.1f} times as long as those of other stages, from "
            "when all are there",
            often(int(slow[stage].sum()), slow.shape[1]) * certainty,
            (("transfer_ratio", times),),
            _ADVICE,
        )
        if part := charge.part(what_if):
            yield part


def _against_stages(what_if: WhatIf, kinds: np.ndarray, kind: str) -> Floats | None:
    """The logarithm of the ratio to other stages: (stage, step). None when there is nothing to compare."""
    chosen = [(kinds == kind) & (what_if.stage == stage) for stage in range(what_if.steps.stages)]
    if len(chosen) < 2 or not all(mask.any() for mask in chosen):
        return None
    took_s = np.array([what_if.worked_s[mask].min(axis=2).sum(axis=0) for mask in chosen])
    log_s = np.log(np.maximum(took_s, LEAST_S))
    ratio: Floats = log_s - others_median(log_s, axis=0)
    return ratio
