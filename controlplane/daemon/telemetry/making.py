"""Make Prometheus metrics with the prefix of this project, in one registry."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.daemon.telemetry.counters import FastCounter, FastHistogram

PREFIX = "holdfast"
JOB = "training_job"
"""The label of a job. Prometheus uses `job` for its own targets."""


class MetricMaker:
    """Makes metrics with our prefix in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._common: dict[str, Any] = {"namespace": PREFIX, "registry": registry}

    def gauge(self, name: str, about: str, *labels: str) -> Gauge:
        """Make a gauge."""
        return Gauge(name, about, labels, **self._common)

    def counter(self, name: str, about: str, *labels: str) -> Counter:
        """Make a counter."""
        return Counter(name, about, labels, **self._common)

    def histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        """Make a histogram."""
        return Histogram(name, about, labels, buckets=buckets, **self._common)

    def tally(self, name: str, about: str, label: str = "") -> FastCounter:
        """Make a counter that is cheap to add to."""
        return FastCounter(f"{PREFIX}_{name.removesuffix('_total')}", about, label, self._registry)

    def spread(self, name: str, about: str, bounds: tuple[float, ...]) -> FastHistogram:
        """Make a histogram that is cheap to add to."""
        return FastHistogram(f"{PREFIX}_{name}", about, bounds, self._registry)
