"""Show the series of each job at 0 before anything is counted in them.

A rate over an absent series shows nothing, and the first increment of one that appears is lost. A job has
hundreds of series, and most of them stay at 0. So they are made once for each job, by the same class as the
real ones, and shown as long as the real one is not there: collecting them costs nothing then."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

Child = tuple[str, ...]
"""The values of a child's labels."""


class Zeroed(Collector):
    """A family of counters or histograms with the real children, and zeros for those that are not there yet.

    - `real`: what is counted in; it is in no registry itself.
    - `make`: makes an empty one of the same kind.
    - `values`: the values of each label but the first one, which is the job's."""

    def __init__(
        self,
        real: Counter | Histogram,
        make: Callable[[], Counter | Histogram],
        labels: Sequence[str],
        values: Sequence[Iterable[str]],
        registry: CollectorRegistry,
    ) -> None:
        self._real, self._make, self.labels = real, make, tuple(labels)
        self._rows = [tuple(map(str, row)) for row in product(*values)]
        self._zeros: dict[str, dict[Child, list[Sample]]] = {}  # by job; empty until the first scrape
        registry.register(self)

    def know(self, job: str) -> None:
        """Show all series of this job from now on."""
        self._zeros.setdefault(job, {})

    def describe(self) -> Iterable[Metric]:
        """Return the family without samples, for the registry."""
        return self._real.describe()

    def collect(self) -> Iterable[Metric]:
        """Return the family, for a scrape."""
        for metric in self._real.collect():
            there = {self._child(sample) for sample in metric.samples}
            for job in list(self._zeros):  # another thread may add one meanwhile
                for child, samples in (self._zeros[job] or self._made(job)).items():
                    if child not in there:
                        metric.samples += samples
            yield metric

    def _made(self, job: str) -> dict[Child, list[Sample]]:
        """Make the zeros of a job."""
        empty = self._make()
        found: dict[Child, list[Sample]] = {}
        for row in self._rows:
            empty.labels(job, *row)
        for metric in empty.collect():
            for sample in metric.samples:
                found.setdefault(self._child(sample), []).append(sample)
        self._zeros[job] = found
        return found

    def _child(self, sample: Sample) -> Child:
        return tuple(sample.labels[label] for label in self.labels)
