"""Find workers and replicas whose computes are slow. Waiting is not slowness: only computes are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import low_median, often, others_median, spread
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Charge, Part, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.robust import Floats
    from controlplane.analysis.timelines.computes import Computes
    from controlplane.analysis.timelines.what_if import WhatIf

_ADVICE = (
    "Look at the device and its host (clocks, temperature, ECC, other processes). "
    "`holdfast drain` the node, and exchange it if it stays slow elsewhere."
)
_REPLICA = "Compare what its data loader feeds it with the others', then look at its hosts."


def slow_workers(what_if: WhatIf, computes: Computes) -> Iterator[Part]:
    """Each worker that is slower than the same stage of other replicas, and costs time by that.

    A job with one replica compares stages, without the last one: it may be slow because it holds more."""
    stages, _, _, replicas = computes.log_s.shape
    if replicas == 1 and stages == 1:
        return
    views = computes.of_worker() if replicas > 1 else (_against_stages(computes),)
    by_step = np.min([np.median(view, axis=1) for view in views], axis=0)
    limit = max(policy.SLOW, policy.NOISE_SPREADS * _noise(views[-1]))
    alone = what_if.workers_alone()
    for stage, replica in np.argwhere((by_step > limit).mean(axis=1) >= policy.STEPS_RATIO):
        slow = by_step[stage, :, replica]
        charge = _worker(what_if, int(stage), int(replica), slow[slow > limit])
        if part := charge.part(what_if, float(alone[stage, replica])):
            yield part


def _noise(own: Floats) -> float:
    """By how much the median of a step scatters, from how much single computes do.

    Forward and backward of a micro-batch scatter together, so they count as one."""
    alike = max(1.0, own.shape[1] / 2.0)
    return math.sqrt(math.pi / 2.0 / alike) * spread(own - np.median(own, axis=1, keepdims=True))


def _against_stages(computes: Computes) -> Floats:
    own = computes.log_s - others_median(computes.log_s, axis=0)
    own[-1] = 0.0
    return own


def _worker(what_if: WhatIf, stage: int, replica: int, slow: Floats) -> Charge:
    steps = what_if.steps
    chosen = np.zeros(steps.ranks.shape, dtype=bool)
    chosen[stage, replica] = True
    ratio, sure = math.exp(float(np.median(slow))), often(len(slow), steps.count)
    peers = "the same stage of other replicas"
    if steps.ranks.shape[1] == 1:
        sure, peers = sure * policy.UNCERTAIN, "other stages (there is no other replica)"
    return Charge(
        "slow_worker",
        named(steps, stage=stage, replica=replica),
        what_if.workers(chosen),
        f"in {len(slow)} of {steps.count} steps its computes take {ratio:.2f} times as long as those of "
        + peers,
        sure,
        (
            ("compute_ratio", ratio),
            ("slow_steps_count", float(len(slow))),
            ("steps_count", float(steps.count)),
        ),
        _ADVICE,
    )


def slow_replicas(what_if: WhatIf, computes: Computes, accused: set[int]) -> Iterator[Part]:
    """Replicas that are slow on all stages, those without an accused worker."""
    stages, _, steps, replicas = computes.log_s.shape
    if stages == 1 or replicas == 1 or steps < policy.REPLICA_STEPS:
        return
    ratio = low_median(computes.against_replicas(), axis=0)
    middle = np.median(ratio, axis=(0, 1))
    quartile = np.quantile(ratio, 0.25, axis=(0, 1))
    slow = (middle > policy.SLOW) & (quartile > math.log(policy.REPLICA_QUARTILE_RATIO))
    for replica in set(map(int, np.flatnonzero(slow))) - accused:
        chosen = np.zeros(what_if.steps.ranks.shape, dtype=bool)
        chosen[:, replica] = True
        times = math.exp(float(middle[replica]))
        slow_steps = int((np.median(ratio[:, :, replica], axis=0) > policy.SLOW).sum())
        charge = Charge(
            "slow_replica",
            named(what_if.steps, replica=replica),
            what_if.workers(chosen),
            f"the computes of all its stages take {times:.2f} times as long as those of other replicas",
            often(slow_steps, steps),
            (("compute_ratio", times),),
            _REPLICA,
        )
        if part := charge.part(what_if):
            yield part
