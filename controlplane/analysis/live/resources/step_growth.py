"""Remember how long a step usually took and what it was made of, over hours, and since when it takes longer;
and by how much waits for samples made it longer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.resources.growth import GrowthWatch

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepGrowth:
    """The step of the job's typical rank, row by row."""

    def __init__(self) -> None:
        self.step = GrowthWatch(policy.STEP_GROWN_RATIO)
        # How many times as long a step takes as without its wait for samples: 1.0 where none is waited for.
        self.waited = GrowthWatch(policy.DATA_GROWN_RATIO)
        self.usual: dict[str, float] = {}  # of each phase, CPU time, tokens and so on per step, as was learnt
        self._learnt: dict[str, list[float]] = {}

    def take(self, ended_s: float, step_s: float, spent: Mapping[str, float]) -> None:
        """Take in a row."""
        if self.step.take(ended_s, step_s):
            self._learn(spent)
        data_s = spent.get("data", math.nan)
        if data_s < step_s:
            self.waited.take(ended_s, step_s / (step_s - data_s))

    def _learn(self, spent: Mapping[str, float]) -> None:
        """Keep what a step is made of while its time is learnt: one row of each span."""
        if self.step.watch.learning:
            for name, value in spent.items():
                if not math.isnan(value):
                    self._learnt.setdefault(name, []).append(value)
        elif self._learnt:
            self.usual = {name: float(np.median(values)) for name, values in self._learnt.items()}
            self._learnt = {}
