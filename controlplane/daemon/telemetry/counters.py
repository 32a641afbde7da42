"""Count what happens thousands of times a second, without locks.

prometheus_client's own counters take a lock, and several microseconds, each time. Here only one thread
counts; another may scrape meanwhile."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


class FastCounter(Collector):
    """A counter with one label, or without any (`label` "")."""

    def __init__(self, name: str, about: str, label: str, registry: CollectorRegistry) -> None:
        self.labels = (label,) if label else ()
        self._name, self._about = name, about
        self._counts: dict[str, int] = {} if label else {"": 0}
        registry.register(self)

    def add(self, value: str = "") -> None:
        """Count one more for this value of the label."""
        self._counts[value] = self._counts.get(value, 0) + 1

    @property
    def total(self) -> int:
        """The sum over all values of the label."""
        return sum(self._counts.copy().values())

    def describe(self) -> Iterable[Metric]:
        """Return the metric without samples, for the registry."""
        return [CounterMetricFamily(self._name, self._about, labels=self.labels)]

    def collect(self) -> Iterable[Metric]:
        """Return the metric, for a scrape."""
        family = CounterMetricFamily(self._name, self._about, labels=self.labels)
        for value, count in self._counts.copy().items():
            family.add_metric([value] if self.labels else [], count)
        return [family]


class FastHistogram(Collector):
    """A histogram without labels."""

    labels: tuple[str, ...] = ()

    def __init__(self, name: str, about: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        self._name, self._about, self._bounds = name, about, tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count one more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> Iterable[Metric]:
        """Return the metric without samples, for the registry."""
        return [HistogramMetricFamily(self._name, self._about)]

    def collect(self) -> Iterable[Metric]:
        """Return the metric, for a scrape."""
        bounds = map(floatToGoString, (*self._bounds, inf))
        buckets = list(zip(bounds, accumulate(self._counts.copy()), strict=True))
        return [HistogramMetricFamily(self._name, self._about, buckets=buckets, sum_value=self._sum)]
