"""Find workers and replicas whose computes are slow. Waiting is not slowness: only computes are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import low_median, often, others_median, spread
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Part, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.timelines.computes import Computes
    from controlplane.analysis.timelines.records import Floats
    from controlplane.analysis.timelines.what_if import WhatIf

_ADVICE = (
    "Look at the device and its host (clocks, temperature, ECC, other processes). "
    "`holdfast drain` the node, and exchange it if it stays slow elsewhere."
)


def slow_workers(what_if: WhatIf, computes: Computes) -> Iterator[Part]:
    """Each worker that is slower than the same stage of other replicas, and costs time by that.

    A job with one replica compares stages, the last one apart: it may be slow because it holds more."""
    stages, _, _, replicas = computes.log_s.shape
    if replicas == 1 and stages == 1:
        return
    views = computes.of_worker() if replicas > 1 else (_against_stages(computes),)
    by_step = np.min([np.median(view, axis=1) for view in views], axis=0)
    limit = max(policy.SLOW, policy.NOISE_SPREADS * _noise(views[-1]))
    alone = what_if.workers_alone()
    for stage, replica in np.argwhere((by_step > limit).mean(axis=1) >= policy.STEPS_RATIO):
        if alone[stage, replica] >= policy.COST_RATIO:
            slow = by_step[stage, :, replica]
            yield _worker(what_if, int(stage), int(replica), slow[slow > limit], float(alone[stage, replica]))


def _noise(own: Floats) -> float:
    """By how much the median of a step scatters, from how much single computes do.

    Forward and backward of a micro-batch scatter together, so they count as one."""
    alike = max(1.0, own.shape[1] / 2.0)
    return math.sqrt(math.pi / 2.0 / alike) * spread(own - np.median(own, axis=1, keepdims=True))


def _against_stages(computes: Computes) -> Floats:
    own = computes.log_s - others_median(computes.log_s, axis=0)
    own[-1] = 0.0
    return own


def _worker(what_if: WhatIf, stage: int, replica: int, slow: Floats, alone: float) -> Part:
    steps = what_if.steps
    chosen = np.zeros(steps.ranks.shape, dtype=bool)
    chosen[stage, replica] = True
    mask, ratio = what_if.workers(chosen), math.exp(float(np.median(slow)))
    sure = often(len(slow), steps.count)
    peers = "the same stage of other replicas"
    if steps.ranks.shape[1] == 1:
        sure, peers = sure * policy.UNCERTAIN, "other stages (there is no other replica)"
    reason = (
        f"its computes take {ratio:.2f} times as long as those of {peers}, in {len(slow)} of {steps.count} "
        f"steps; alone it makes a step {alone:.2f} times as long"
    )
    evidence = (
        ("compute_ratio", ratio),
        ("slowdown_alone_ratio", alone),
        ("cost_s_per_step", what_if.step_s - what_if.fixed_s(mask)),
        ("slow_steps_count", float(len(slow))),
        ("steps_count", float(steps.count)),
    )
    where = named(steps, stage=stage, replica=replica)
    return Part(where.finding("slow_worker", alone, reason, sure, evidence, _ADVICE), alone, mask)


def slow_replicas(what_if: WhatIf, computes: Computes, accused: set[int]) -> Iterator[Part]:
    """Replicas that are slow on all stages, those without an accused worker."""
    stages, _, steps, replicas = computes.log_s.shape
    if stages == 1 or replicas == 1 or steps < policy.REPLICA_STEPS:
        return
    ratio = low_median(computes.against_replicas(), axis=0)
    middle = np.median(ratio, axis=(0, 1))
    quartile = np.quantile(ratio, 0.25, axis=(0, 1))
    slow = (middle > policy.SLOW) & (quartile > math.log(policy.REPLICA_QUARTILE_RATIO))
    for replica in np.flatnonzero(slow):
        if int(replica) in accused:
            continue
        chosen = np.zeros(what_if.steps.ranks.shape, dtype=bool)
        chosen[:, replica] = True
        mask = what_if.workers(chosen)
        alone, times = what_if.alone(mask), math.exp(float(middle[replica]))
        if alone >= policy.COST_RATIO:
            sure = often(int((np.median(ratio[:, :, replica], axis=0) > policy.SLOW).sum()), steps)
            reason = (
                f"all of its stages take {times:.2f} times as long as those of other replicas; alone it makes "
                f"a step {alone:.2f} times as long"
            )
            evidence = (("compute_ratio", times), ("slowdown_alone_ratio", alone))
            where = named(what_if.steps, replica=int(replica))
            advice = "Compare what its data loader feeds it with the others', then look at its hosts."
            yield Part(where.finding("slow_replica", alone, reason, sure, evidence, advice), alone, mask)
