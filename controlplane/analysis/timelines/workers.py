"""Find workers and replicas whose computes are slow. Waiting is not slowness: only computes are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import low_median, often, spread
from controlplane.analysis.timelines import policy
from controlplane.analysis.timelines.subjects import Charge, Part, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.robust import Floats
    from controlplane.analysis.steps.what_if import WhatIf
    from controlplane.analysis.timelines.computes import Computes

_ADVICE = (
    "Look at the device and its host (clocks, temperature, ECC, other processes). "
    "`holdfast drain` the node, and exchange it if it stays slow elsewhere."
)
_REPLICA = "Compare what its data loader feeds it with the others', then look at its hosts."


@dataclass(frozen=True, slots=True)
class Slow:
    """A worker that is slower than its peers in a run of steps, by the logarithm of a ratio."""

    stage: int
    replica: int
    steps: slice
    log_ratio: float
    slow_steps: int  # in the run, those in which it is slow by half of the limit at least


def slow_workers(what_if: WhatIf, computes: Computes) -> tuple[list[Part], Computes]:
    """Find the workers that are slower than the same stage of other replicas. Return what each costs, and the
    computes as if none had been slow.

    The slowest is taken first, and the others are judged as if it had not been slow: it neither hides them
    nor makes them look slow. With one replica, stages are compared with each other, and the last one is not
    judged: it may hold more."""
    alone = what_if.workers_alone()
    parts: list[Part] = []
    seen: set[tuple[int, int]] = set()
    for _ in range(policy.WORKERS_MAX):
        slow = slowest(computes)
        if slow is None:
            break
        computes = computes.without(slow.stage, slow.steps, slow.replica, slow.log_ratio)
        worker = slow.stage, slow.replica
        if (
            worker not in seen
        ):  # what is left of one that changes its speed more than once is the same finding
            if part := _charge(what_if, slow).part(what_if, float(alone[worker])):
                parts.append(part)
        seen.add(worker)
    return parts, computes


def slowest(computes: Computes) -> Slow | None:
    """The worker that is most surely slow, in all steps, from some step on, or up to some step."""
    stages, _, steps, replicas = computes.log_s.shape
    if replicas == 1 and stages == 1:
        return None
    views = [computes.against_replicas()] if replicas > 1 else [_without_last(computes.against_stages())]
    if stages > 1 and replicas > 1:
        views.append(computes.of_worker(views[0]))
    by_step = [np.median(view, axis=1) for view in views]
    micro_batches = max(1.0, len(computes.units) / 2.0)  # forward and backward scatter together
    scatter = [_scatter(view, micro_batches) for view in views]
    best, found = 0.0, None
    for run in _runs(steps):
        count = (run.stop - run.start) * micro_batches
        unsure = math.sqrt(math.pi / 2.0 / count) * (1.0 + policy.NOISE_FEW / count)
        levels = [np.median(each[:, run], axis=1) for each in by_step]
        own, plain = levels[-1], levels[0]
        enough = (own > max(policy.SLOW, policy.NOISE_SPREADS * unsure * scatter[-1])) & (
            plain > max(policy.SLOW, policy.PLAIN_SPREADS * unsure * scatter[0])
        )
        # A median does not show whether some steps of a run are fast; a mean does, so the exact run wins.
        means = np.min([each[:, run].mean(axis=1) for each in by_step], axis=0)
        sure = np.where(enough, means, 0.0) * math.sqrt(count)
        if sure.max() > best:
            best = float(sure.max())
            stage, replica = map(int, np.unravel_index(int(sure.argmax()), sure.shape))
            slow_steps = int((by_step[-1][stage, run, replica] > 0.5 * policy.SLOW).sum())
            found = Slow(stage, replica, run, float(own[stage, replica]), slow_steps)
    return found


def _runs(steps: int) -> list[slice]:
    """All steps, and those up to and from every step, long enough each."""
    least = max(policy.STEPS_MIN, math.ceil(policy.STEPS_RATIO * steps))
    cuts = np.unique(np.linspace(0, steps, min(steps, policy.ONSETS_MAX) + 1).astype(int))[1:-1]
    runs = [*(slice(int(cut), steps) for cut in cuts), *(slice(0, int(cut)) for cut in cuts)]
    return [slice(0, steps), *(run for run in runs if run.stop - run.start >= least)]


def _scatter(own: Floats, micro_batches: float) -> float:
    """Return by how much single computes of a worker scatter around its median of all steps.

    If a step has enough of them, and that is less: around the median of each step, as the speed may change.
    Few values lie nearer to their own median than to the true one; the factor `few` makes up for it."""
    count = micro_batches * own.shape[2]
    few = float(count / max(0.5, count - 1.0))
    scatter = few * spread(own - np.median(own, axis=(1, 2), keepdims=True))
    if micro_batches < policy.MICRO_BATCHES_MIN:
        return scatter
    return min(scatter, spread(own - np.median(own, axis=1, keepdims=True)))


def _without_last(own: Floats) -> Floats:
    found = own.copy()
    found[-1] = 0.0
    return found


def _charge(what_if: WhatIf, slow: Slow) -> Charge:
    steps, replicas = what_if.steps, what_if.steps.ranks.shape[1]
    chosen = np.zeros(steps.ranks.shape, dtype=bool)
    chosen[slow.stage, slow.replica] = True
    ratio, count = math.exp(slow.log_ratio), slow.steps.stop - slow.steps.start
    first, last = steps.numbers[slow.steps.start], steps.numbers[slow.steps.stop - 1]
    sure, peers = often(slow.slow_steps, count), "the same stage of other replicas"
    if replicas == 1:
        sure, peers = sure * policy.UNCERTAIN, "other stages (there is no other replica)"
    when = "in all steps" if count == steps.count else f"from step {first} to step {last}"
    return Charge(
        "slow_worker",
        named(steps, stage=slow.stage, replica=slow.replica),
        what_if.workers(chosen),
        f"{when} its computes take {ratio:.2f} times as long as those of {peers}",
        sure,
        (
            ("compute_ratio", ratio),
            ("first_slow_step", float(first)),
            ("last_slow_step", float(last)),
            ("slow_steps_count", float(slow.slow_steps)),
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
    for replica in sorted(set(map(int, np.flatnonzero(slow))) - accused):
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
