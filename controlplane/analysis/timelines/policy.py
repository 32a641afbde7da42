"""Set the limits beyond which something is a finding, each with its reason."""

from __future__ import annotations

import math

from controlplane.core.state.findings import Level

SLOW_RATIO = 1.15
"""A worker or replica is slow when its computes take more than this many times as long as those of its peers.
Healthy devices of one kind differ by a few percent each; with two replicas, both differences add up."""
OVERFULL_RATIO = 1.1
"""A stage holds too much when its computes take more than this many times as long as those of other stages.
Less is needed than for a worker: the median of its workers is compared, so a slow one matters less."""
NOISE_SPREADS = 4.0
"""A slow worker exceeds its peers by so many times the scatter of the median: few operations tell little."""
NOISE_FEW = 4.0
"""With only so many micro-batches that limit is doubled: the scatter of a median of few is not well known."""
MICRO_BATCHES_MIN = 6
"""From so many on, the micro-batches of a single step suffice to tell how much they scatter."""
PLAIN_SPREADS = 2.0
"""As NOISE_SPREADS, for the plain ratio to other replicas: long sequences blur it, so less is demanded."""
STEPS_RATIO = 0.25
"""A worker is judged over runs of consecutive steps that have at least this part of all steps,"""
STEPS_MIN = 3
"""and at least so many, or are all steps: nobody has to act on what passes within a step or two."""
ONSETS_MAX = 32
"""At most so many steps, spread evenly, are tried as the beginning or the end of slowness."""
WORKERS_MAX = 16
"""At most so many slow workers are named: when there are more, something else is wrong."""
STAGE_STEPS_RATIO = 0.75
"""A stage, link or collective is slow in at least this part of the steps: how many layers a stage holds, for
example, does not change."""
REPLICA_QUARTILE_RATIO = 1.05
"""A slow replica exceeds this ratio in three quarters of its micro-batches, not only in some long ones."""
REPLICA_STEPS = 5
"""With fewer steps no replica is called slow: it may have been given longer sequences by chance."""
LINK_RATIO = 2.0
"""A link is slow when its transfers take more than this many times as long as the same transfers of other
replicas: transfers scatter far more than computes."""
COLLECTIVE_RATIO = 4.0
"""The same for transfers and collectives of one stage, against those of other stages, which need not do the
same: a stage with an embedding sends twice as much."""
COLLECTIVE_STEPS = 3
"""A step has one or two collectives of a kind: with fewer steps a slow one may be a single slow transfer."""
COST_RATIO = 1.02
"""A finding: a part that alone makes a step at least this many times as long. Less is not worth a visit."""
CRITICAL_RATIO = 1.2
"""A part that makes every step a fifth longer by itself is critical."""
UNEVEN_CORRELATION = 0.9
"""From this correlation of forward and backward times over micro-batches on, the lengths of sequences explain
the times (OSDI'25, section 5.3)."""
UNEVEN_SPREAD = 0.05
"""The spread of micro-batches' times, at least, for them to be called uneven."""
UNEVEN_COST_RATIO = 1.05
"""Micro-batches are blamed when at least this slowdown is left after all other findings are fixed."""
UNCERTAIN = 0.5
"""The confidence is multiplied by this where other stages are the peers in place of other replicas: they do
not do the same work."""

SLOW, OVERFULL = math.log(SLOW_RATIO), math.log(OVERFULL_RATIO)


def level(alone_ratio: float) -> Level:
    """How bad a part is that costs this much alone."""
    return Level.CRITICAL if alone_ratio >= CRITICAL_RATIO else Level.DEGRADED
