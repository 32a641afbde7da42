"""From when on something is a finding, each limit with its reason."""

from __future__ import annotations

import math

from controlplane.core.state.findings import Level

SLOW_RATIO = 1.15
"""A worker's computes against its peers': healthy devices of one kind differ by a few percent each, and two
replicas show the difference between the better and the worse one."""
OVERFULL_RATIO = 1.1
"""A stage's computes against others'. The faster half of its workers speaks, so a slow one matters less."""
NOISE_SPREADS = 4.0
"""And by so many times what the median scatters: a step of few operations tells little."""
NOISE_FEW = 4.0
"""So many micro-batches double that: the scatter of a median of few is not well known."""
MICRO_BATCHES_MIN = 6
"""From so many on, the micro-batches of one step tell how much they scatter."""
PLAIN_SPREADS = 2.0
"""The same for the plain ratio to other replicas, which long sequences blur."""
STEPS_RATIO = 0.25
"""A worker is slow in this part of the steps in a row, at least,"""
STEPS_MIN = 3
"""and in so many, or in all: what passes within a step or two needs nobody."""
ONSETS_MAX = 32
"""Steps at which slowness may begin or end, at most, spread evenly."""
WORKERS_MAX = 16
"""Slow workers that are named: when there are more, something else is wrong."""
STAGE_STEPS_RATIO = 0.75
"""How many layers a stage holds does not change: it is slower in nearly all steps."""
REPLICA_QUARTILE_RATIO = 1.05
"""A slow replica is slow with three quarters of its micro-batches, not only with some long ones."""
REPLICA_STEPS = 5
"""With fewer steps a replica may have been given longer sequences by chance."""
LINK_RATIO = 2.0
"""A transfer against the same transfer of other replicas: transfers scatter far more than computes."""
COLLECTIVE_RATIO = 4.0
"""A collective of one stage against those of other stages: a stage with an embedding sends twice as much."""
COLLECTIVE_STEPS = 3
"""A step has one or two collectives of a kind: with fewer steps a slow one may be a single slow transfer."""
COST_RATIO = 1.02
"""What a part costs alone, at least: what costs less is not worth a visit."""
CRITICAL_RATIO = 1.2
"""A part that makes every step a fifth longer by itself is critical."""
UNEVEN_CORRELATION = 0.9
"""Of forward and backward times over micro-batches: from here on the lengths of sequences explain them
(OSDI'25, section 5.3)."""
UNEVEN_SPREAD = 0.05
"""The spread of micro-batches' times, at least, for them to be called uneven."""
UNEVEN_COST_RATIO = 1.05
"""What is left of the slowdown when all other findings are fixed, for micro-batches to be blamed for it."""
UNCERTAIN = 0.5
"""Times the confidence, where peers do not do the same: other stages in place of other replicas."""

SLOW, OVERFULL = math.log(SLOW_RATIO), math.log(OVERFULL_RATIO)


def level(alone_ratio: float) -> Level:
    """How bad a part is that costs this much alone."""
    return Level.CRITICAL if alone_ratio >= CRITICAL_RATIO else Level.DEGRADED
