"""Ask what a part of a job costs: replay its steps with that part ideal, or with only that part as recorded.

With T a mean step time of the replay: slowdown = T / T_ideal; a part's share of it is
(T - T_fixed) / (T - T_ideal), where only that part is ideal in T_fixed. Shares are not clipped and need not
add up to 1: two equal stragglers hide each other, and each alone has a share near 0. So parts are found by
what each costs alone: T with only that part as recorded, over T_ideal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.steps.graph import build
from controlplane.analysis.steps.timing import ideal_s, step_s, working_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.steps.records import Floats, Steps

    Mask = NDArray[np.bool_]

WORST_RATIO = 0.03
"""The part of all workers that counts as the worst, one worker at least: as in the paper's M_W."""
NO_SLOWDOWN = 1e-6
"""Below it a share would divide by rounding errors."""


class WhatIf:
    """The replays of one recording. Masks choose operations: they broadcast to (operation, 1, replica)."""

    def __init__(self, steps: Steps) -> None:
        """Raises TimelineError when the operations do not fit each other, or no time passes in a step."""
        self.steps = steps
        self.graph = build(steps)
        self.worked_s = working_s(steps, self.graph)
        self.ideal_s = ideal_s(steps, self.worked_s)
        self.stage = np.array([operation.stage for operation in steps.operations])
        self.step_s = float(step_s(self.graph, self.worked_s).mean())
        self.ideal_step_s = float(step_s(self.graph, self._mixed(np.array(False))).mean())

    @property
    def slowdown(self) -> float:
        """T / T_ideal; 1 when nothing takes any time."""
        return self.step_s / self.ideal_step_s if self.ideal_step_s > 0 else 1.0

    def workers(self, chosen: Mask) -> Mask:
        """The operations of these (stage, replica)."""
        mask: Mask = chosen[self.stage][:, None, :]
        return mask

    def of_stage(self, stage: int) -> Mask:
        """All operations of a stage."""
        mask: Mask = (self.stage == stage)[:, None, None]
        return mask

    def fixed_s(self, mask: Mask) -> float:
        """T when these operations take the ideal time."""
        return float(step_s(self.graph, self._mixed(~mask)).mean())

    def alone(self, mask: Mask) -> float:
        """T when all operations but these take the ideal time, over T_ideal: 1 when they cost nothing."""
        return self._ratio(float(step_s(self.graph, self._mixed(mask)).mean()))

    def share(self, mask: Mask) -> float:
        """The part of the slowdown that would be gone if these operations took the ideal time."""
        lost_s = self.step_s - self.ideal_step_s
        if lost_s <= NO_SLOWDOWN * self.step_s:
            return 0.0
        return (self.step_s - self.fixed_s(mask)) / lost_s

    def workers_alone(self) -> Floats:
        """`alone` of each worker: (stage, replica). One replay per stage does for all of its replicas."""
        return np.array([self._replicas_alone(self.stage == stage) for stage in range(self.steps.stages)])

    def worst_workers(self, alone: Floats) -> Mask:
        """Those that cost most, as (stage, replica); the one that comes first of equals."""
        count = math.ceil(WORST_RATIO * alone.size)
        order = np.argsort(-alone, axis=None, kind="stable")[:count]
        found = np.zeros(alone.size, dtype=bool)
        found[order] = True
        return found.reshape(alone.shape)

    def last_stage(self) -> Mask:
        """All operations of the last stage."""
        return self.of_stage(self.steps.stages - 1)

    def _replicas_alone(self, operations: Mask) -> Floats:
        """What the chosen operations of each replica cost when the other replicas are ideal. A second
        replica stands for all ideal ones, so that each (step, replica) is a step of two replicas."""
        mine = self._mixed(operations[:, None, None])
        count, steps, replicas = mine.shape
        both = [mine] if replicas == 1 else [mine, np.broadcast_to(self.ideal_s, mine.shape)]
        durations_s = np.stack(both, axis=-1).reshape(count, steps * replicas, len(both))
        found_s = step_s(self.graph, durations_s).reshape(steps, replicas).mean(axis=0)
        return np.array([self._ratio(float(each)) for each in found_s])

    def _mixed(self, recorded: Mask) -> Floats:
        return np.where(recorded, self.worked_s, self.ideal_s)

    def _ratio(self, found_s: float) -> float:
        return found_s / self.ideal_step_s if self.ideal_step_s > 0 else 1.0
