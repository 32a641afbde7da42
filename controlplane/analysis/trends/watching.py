"""Watch one metric, sample by sample, and say since when it is not as usual.

At first the usual is learnt: a range that nearly all samples lie in, the spread, and how much neighbours are
alike. Then what lies beyond the range is summed up, less an allowance, and never below 0 (CUSUM; Page,
Biometrika 41, 1954): a sum over the limit is a change that began when the sum last was 0. Outliers count for
little, a daily rhythm lies in the range once a day was learnt, and so does a second level that was seen.

Samples are gathered in blocks, the longer the learning time the more in each; a block counts by its median.
So a watch costs little, and its memory is bounded."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.robust import spread
from controlplane.analysis.trends import policy
from controlplane.analysis.trends.slopes import Reached, reached, steady_growth, theil_sen

if TYPE_CHECKING:
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric that is not as usual. `per_s`: its steady growth since then; None: it has none, or too little
    is known. Times in s."""

    rises: bool
    since_s: float
    usual: float
    level: float
    per_s: float | None

    def since(self, now_s: float) -> str:
        """For a sentence: until when it was as usual."""
        return f"was usual until {(now_s - self.since_s) / 3600.0:.2g} hours ago"


@dataclass(frozen=True, slots=True)
class _Usual:
    """What was learnt. `limit`: of the sums."""

    level: float
    low: float
    high: float
    spread: float
    limit: float


class MetricWatch:
    """Watch a metric. It learns from at least `learn` samples, over at least `learn_s`: a day or more, where
    days have a rhythm."""

    def __init__(self, learn: int, learn_s: float = 0.0) -> None:
        self._learn, self._learn_s = learn, learn_s
        self._block: list[float] = []
        self._size = 1  # samples per block
        self._learnt: list[tuple[float, float]] = []
        self._usual: _Usual | None = None
        self._recent: deque[tuple[float, float]] = deque(maxlen=policy.RECENT)
        self._sums = {True: 0.0, False: 0.0}
        self._since = {True: 0.0, False: 0.0}
        self._rises: bool | None = None  # whether what has changed rises; None: nothing has
        self._at_s = -math.inf
        self.ignored = 0  # samples that were no number, or not newer than the one before

    @property
    def learning(self) -> bool:
        """Whether the usual is not known yet, so that nothing can be said."""
        return self._usual is None

    @property
    def changed(self) -> bool:
        """Whether something is not as usual at present."""
        return self._rises is not None

    def observe(self, at_s: float, value: float) -> None:
        """Take in a sample."""
        if not math.isfinite(value) or not math.isfinite(at_s) or at_s <= self._at_s:
            self.ignored += 1
            return
        self._at_s = at_s
        self._block.append(value)
        if len(self._block) < self._size:
            return
        middle = float(np.median(self._block))
        self._block = []
        if self._usual is None:
            self._take_for_usual(at_s, middle)
        else:
            self._sum_up(at_s, middle, self._usual)

    @property
    def change(self) -> MetricChange | None:
        """What is not as usual at present; None: nothing is known to be unusual."""
        if self._usual is None or self._rises is None:
            return None
        since_s = self._since[self._rises]
        at, values = self._since_change()
        level = float(np.median(values[-policy.LEVEL_BLOCKS :]))
        sign = 1.0 if self._rises else -1.0
        pace = None
        if len(values) >= policy.PACE_LEAST:
            pace = steady_growth(at, sign * values, self._usual.spread)
        return MetricChange(
            self._rises, since_s, self._usual.level, level, None if pace is None else sign * pace
        )

    def reaches(self, limit: float, now_s: float) -> Reached | None:
        """When the metric reaches a limit if it goes on as it does; None: it does not move there steadily, or
        should have been there by now: then the newest blocks do not say how it goes on."""
        change = self.change
        if change is None or change.per_s is None or change.per_s * (limit - change.level) <= 0:
            return None
        found = reached(*self._since_change(), limit)
        return found if found is not None and found.likely > now_s else None

    def _since_change(self) -> tuple[Floats, Floats]:
        """The newest blocks since the change began."""
        assert self._rises is not None
        kept = [each for each in self._recent if each[0] > self._since[self._rises]]
        found = np.array(kept)
        return found[:, 0], found[:, 1]

    def _take_for_usual(self, at_s: float, value: float) -> None:
        self._learnt.append((at_s, value))
        if len(self._learnt) * self._size >= self._learn and at_s - self._learnt[0][0] >= self._learn_s:
            self._usual = _usual(np.array(self._learnt))
            self._since = dict.fromkeys(self._since, at_s)
            self._learnt = []
        elif len(self._learnt) >= policy.LEARNT_MAX:
            pairs = zip(self._learnt[::2], self._learnt[1::2], strict=True)
            self._learnt = [(later[0], 0.5 * (earlier[1] + later[1])) for earlier, later in pairs]
            self._size *= 2

    def _sum_up(self, at_s: float, value: float, usual: _Usual) -> None:
        self._recent.append((at_s, value))
        for rises, beyond in ((True, value - usual.high), (False, usual.low - value)):
            excess = min(max(beyond, 0.0) / usual.spread, policy.CLIP_SPREADS) - policy.ALLOWANCE_SPREADS
            total = min(self._sums[rises] + excess, policy.SUM_MAX_RATIO * usual.limit)
            self._sums[rises] = max(0.0, total)
            if total <= 0.0:
                self._since[rises] = at_s
                if self._rises is rises:
                    self._rises = None
            elif total >= usual.limit and self._rises is None:
                self._rises = rises


def _usual(learnt: Floats) -> _Usual:
    """The range of nearly all blocks, and how far the sums may go."""
    at, values = learnt[:, 0], learnt[:, 1]
    ascending = np.sort(values)
    outside = min(max(1, int(len(values) * policy.EDGE_SHARE)), (len(values) - 1) // 2)
    low, high = float(ascending[outside]), float(ascending[-1 - outside])
    level = float(np.median(values))
    apart = max(spread(values), policy.SPREAD_RATIO_MIN * abs(level), float(np.finfo(float).tiny))
    alike = _alike(at, values)
    return _Usual(level, low, high, apart, policy.SUM_LIMIT * (1.0 + alike) / (1.0 - alike))


def _alike(at: Floats, values: Floats) -> float:
    """How much neighbouring blocks are alike, apart from a trend: 0 to CORRELATION_MAX."""
    if len(values) < 3:
        return 0.0
    rest = values - theil_sen(at, values) * (at - at[0])
    rest = rest - np.median(rest)
    edge = policy.CLIP_SPREADS * spread(rest)
    rest = np.clip(rest, -edge, edge)
    total = float(rest @ rest)
    found = float(rest[1:] @ rest[:-1]) / total if total > 0 else 0.0
    return min(max(found, 0.0), policy.CORRELATION_MAX)
