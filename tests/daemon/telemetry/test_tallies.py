"""What is counted cheaply reads like what prometheus_client counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from controlplane.daemon.telemetry.counters import FastCounter, FastHistogram

BOUNDS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1)


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_a_tally_is_a_counter() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    counter, tally = (
        Counter("x_total", "About.", ["kind"], registry=theirs),
        FastCounter("x", "About.", "kind", ours),
    )
    bare, alone = Counter("y_total", "About.", registry=theirs), FastCounter("y", "About.", "", ours)
    assert shown(ours) == shown(theirs), "an unlabelled one begins at 0"
    for kind in ("a", "b", "a"):
        counter.labels(kind).inc()
        tally.add(kind)
        bare.inc()
        alone.add()
    assert shown(ours) == shown(theirs)
    assert (tally.total, alone.total) == (3, 3)


def test_a_spread_is_a_histogram() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram, spread = (
        Histogram("x", "About.", buckets=BOUNDS, registry=theirs),
        FastHistogram("x", "About.", BOUNDS, ours),
    )
    assert shown(ours) == shown(theirs)
    for value in (0.0, 1e-5, 2e-5, 0.1, 0.5, 1, 2.5):
        histogram.observe(value)
        spread.observe(value)
        assert shown(ours) == shown(theirs)
