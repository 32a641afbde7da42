"""Remember what one number of the job usually was, over hours and generations, and whether it has grown.

What a rank or the job is compared with elsewhere (`memory.Usual`) follows slowly: what grows by a tenth
within an hour is usual before anybody is told."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.trends.watching import MetricWatch

if TYPE_CHECKING:
    from controlplane.analysis.trends.watching import MetricChange


class GrowthWatch:
    """A number of each row. Medians of spans are what is watched; a day says what is usual."""

    def __init__(self, grown_ratio: float) -> None:
        """`grown_ratio`: it has grown when it is so many times what was usual."""
        self.watch = MetricWatch(policy.STEPS_LEARNT, policy.STEPS_LEARNT_S)
        self._grown_ratio = grown_ratio
        self._began_s = -math.inf  # when the span began of which these are the values
        self._span: list[float] = []
        self._grew = False

    def take(self, ended_s: float, value: float) -> bool:
        """Take in the value of a row, which is positive. Returns whether a span begins with it."""
        if math.isnan(value):
            return False
        if self._span and ended_s - self._began_s >= policy.STEPS_SPAN_S:
            self._sample(ended_s)
        begins = not self._span
        if begins:
            self._began_s = ended_s
        self._span.append(value)
        return begins

    def _sample(self, ended_s: float) -> None:
        self.watch.observe(ended_s, float(np.median(self._span)))
        self._span = []
        change = self.watch.change
        if change is None or not change.rises:
            self._grew = False
        elif change.per_s is not None and change.per_s > 0.0:
            self._grew = self._grew or ended_s - change.since_s >= policy.STEPS_GROW_S

    @property
    def grown(self) -> MetricChange | None:
        """The change, if the number has grown steadily, and still is greater than usual; else None. Of what
        became greater at one moment others tell."""
        change = self.watch.change
        if not self._grew or change is None or change.level < self._grown_ratio * change.usual:
            return None
        return change
