"""Make Prometheus metrics with the prefix of this project, in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from controlplane.daemon.telemetry.counters import FastCounter, FastHistogram
from controlplane.daemon.telemetry.zeroed import Zeroed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PREFIX = "holdfast"
JOB = "training_job"
"""The label of a job. Prometheus uses `job` for its own targets."""


class MetricMaker:
    """Makes metrics with our prefix in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Else each counter has a second series, which nothing of ours asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self.of_jobs: list[Zeroed] = []
        """The families whose series are shown for each job from the beginning."""
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

    def job_counter(self, name: str, about: str, **values: Iterable[str]) -> Counter:
        """Make a counter of each job, with a further label for each keyword: all values that it can have."""

        def make() -> Counter:
            return Counter(name, about, (JOB, *values), namespace=PREFIX, registry=None)

        counter = make()
        self._show(counter, make, values)
        return counter

    def job_histogram(
        self, name: str, about: str, buckets: tuple[float, ...], **values: Iterable[str]
    ) -> Histogram:
        """Make a histogram of each job, as `job_counter` does."""

        def make() -> Histogram:
            labels = (JOB, *values)
            return Histogram(name, about, labels, namespace=PREFIX, registry=None, buckets=buckets)

        histogram = make()
        self._show(histogram, make, values)
        return histogram

    def _show(
        self,
        real: Counter | Histogram,
        make: Callable[[], Counter | Histogram],
        values: dict[str, Iterable[str]],
    ) -> None:
        labels = (JOB, *values)
        self.of_jobs.append(Zeroed(real, make, labels, list(values.values()), self._registry))

    def tally(self, name: str, about: str, label: str = "") -> FastCounter:
        """Make a counter that is cheap to add to."""
        return FastCounter(f"{PREFIX}_{name.removesuffix('_total')}", about, label, self._registry)

    def spread(self, name: str, about: str, bounds: tuple[float, ...]) -> FastHistogram:
        """Make a histogram that is cheap to add to."""
        return FastHistogram(f"{PREFIX}_{name}", about, bounds, self._registry)
