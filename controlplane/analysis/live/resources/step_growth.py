"""Remember how long a step usually took, over hours and generations, and since when it takes longer.

What a rank or the job is compared with elsewhere (`memory.Usual`) follows slowly: a step that becomes a tenth
longer within an hour is usual before anybody is told."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.trends.watching import MetricWatch

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepGrowth:
    """The step of the job's typical rank, row by row."""

    def __init__(self) -> None:
        self.watch = MetricWatch(policy.STEPS_LEARNT, policy.STEPS_LEARNT_S)
        self.usual: dict[str, float] = {}  # of each phase, CPU time, tokens and so on per step, as was learnt
        self._learnt: dict[str, list[float]] = {}
        self._began_s = -math.inf  # when the span began of which these are the steps
        self._span: list[float] = []
        self._grew = False

    def take(self, ended_s: float, step_s: float, spent: Mapping[str, float]) -> None:
        """Take in a row."""
        if math.isnan(step_s):
            return
        if self._span and ended_s - self._began_s >= policy.STEPS_SPAN_S:
            self._sample(ended_s)
        if not self._span:
            self._began_s = ended_s
            self._learn(spent)
        self._span.append(step_s)

    def _sample(self, ended_s: float) -> None:
        self.watch.observe(ended_s, float(np.median(self._span)))
        self._span = []
        change = self.watch.change
        if change is None or not change.rises:
            self._grew = False
        elif change.per_s is not None and change.per_s > 0.0:
            self._grew = self._grew or ended_s - change.since_s >= policy.STEPS_GROW_S

    def _learn(self, spent: Mapping[str, float]) -> None:
        """Keep what a step is made of while its time is learnt: one row of each span."""
        if self.watch.learning:
            for name, value in spent.items():
                if not math.isnan(value):
                    self._learnt.setdefault(name, []).append(value)
        elif self._learnt:
            self.usual = {name: float(np.median(values)) for name, values in self._learnt.items()}
            self._learnt = {}

    @property
    def grew(self) -> bool:
        """Whether steps have grown steadily, and still are longer than usual. Of steps that became longer at
        one moment others tell."""
        change = self.watch.change
        return self._grew and change is not None and change.level >= policy.STEP_GROWN_RATIO * change.usual
