"""Find stages that hold more work than the others, in all replicas alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import low_median, often, others_median
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Charge, Part, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.steps.what_if import WhatIf
    from controlplane.analysis.timelines.computes import Computes

_LAST = "Move layers from the last stage to earlier ones: it computes the logits and the loss, too."
_OTHER = "Move layers from this stage to the others, or its embedding."


def overfull_stages(what_if: WhatIf, computes: Computes) -> Iterator[Part]:
    """Stages whose computes take longer than those of other stages, whatever the replica.

    The median of the replicas counts (of two, the faster one), so one slow worker does not. With one replica
    only the last stage is judged, since any other slow stage may as well be a slow worker."""
    stages, _, steps, replicas = computes.log_s.shape
    if stages == 1:
        return
    total = np.log(computes.micro_batch_s())
    by_step = low_median(total - others_median(total, axis=0), axis=2)
    slow = by_step > policy.OVERFULL
    for stage in map(int, np.flatnonzero(slow.mean(axis=1) >= policy.STAGE_STEPS_RATIO)):
        last = stage == stages - 1
        if replicas == 1 and not last:
            continue
        ratio = math.exp(float(np.median(by_step[stage])))
        charge = Charge(
            "overfull_last_stage" if last else "overfull_stage",
            named(what_if.steps, stage=stage),
            what_if.of_stage(stage),
            f"its computes take {ratio:.2f} times as long as those of other stages, in all replicas",
            often(int(slow[stage].sum()), steps) * (policy.UNCERTAIN if replicas == 1 else 1.0),
            (("compute_ratio", ratio),),
            _LAST if last else _OTHER,
        )
        if part := charge.part(what_if):
            yield part
