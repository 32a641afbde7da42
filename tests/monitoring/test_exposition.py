"""The text of /metrics is what prometheus_client writes, and shows each job's counters before they count."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families as families

from controlplane.core.records.model import Cause, Scope
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.exposition import Exposition, wsgi_app

if TYPE_CHECKING:
    from collections.abc import Callable

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def filled() -> Metrics:
    metrics = Metrics("1")
    for job in ("a", "b"):
        metrics.know_job(job)
    return metrics


def counted(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """The failures by job, level and cause. Fails if one of these series is there twice."""
    found: dict[tuple[str, ...], float] = {}
    for family in families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name == "holdfast_failures_detected_total":
                labels = tuple(sample.labels[name] for name in ("training_job", "level", "cause"))
                assert labels not in found
                found[labels] = sample.value
    return found


def test_every_series_of_a_job_is_there_at_0_and_once_only_when_it_counts() -> None:
    metrics = filled()
    every = {(job, level.value, cause.value): 0.0 for job in "ab" for level in Scope for cause in Cause}
    assert counted(metrics.registry) == every
    metrics.failures_detected_total.labels("b", Scope.RANK, Cause.SIGNALED).inc(2)
    metrics.know_job("b")
    assert counted(metrics.registry) == every | {("b", Scope.RANK.value, Cause.SIGNALED.value): 2.0}


def test_a_histogram_of_zeros_has_all_its_buckets() -> None:
    text = generate_latest(filled().registry).decode()
    restored = [line for line in text.splitlines() if line.startswith("holdfast_recovery_seconds")]
    of_one = [line for line in restored if 'training_job="a"' in line and 'phase="restore"' in line]
    assert len(of_one) == 17 and all(line.endswith(" 0.0") for line in of_one)


@pytest.mark.parametrize("accept", ["", OPEN_METRICS, "text/plain;version=1.0.0;escaping=underscores"])
def test_the_text_is_the_librarys_whatever_has_changed(accept: str) -> None:
    metrics = filled()
    exposition, (encode, content_type) = Exposition(metrics.registry), choose_encoder(accept)
    changes: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: metrics.recovery_seconds.labels("a", "reform").observe(0.2),
        lambda: metrics.know_job("c"),
        lambda: metrics.incidents_total.labels("c", "spare", "recovered", "cluster").inc(),
        lambda: metrics.job_phase.labels("a", "running").set(1),
        metrics.job_phase.clear,
        metrics.heartbeats_total.add,
    )
    for change in changes:
        change()
        assert exposition.text(accept) == (encode(metrics.registry), content_type)
        exposition.text(OPEN_METRICS if not accept else "")  # somebody else asks in another format
        assert exposition.text(accept)[0] == encode(metrics.registry)


def test_a_family_that_is_as_it_was_is_not_written_again() -> None:
    registry = CollectorRegistry()
    still, moves = Gauge("still", "s", registry=registry), Counter("moves", "m", registry=registry)
    exposition = Exposition(registry)
    exposition.text("")
    kept = dict(exposition._texts)
    moves.inc()
    still.set(0)
    exposition.text("")
    assert exposition._texts["still"] is kept["still"] and exposition._texts["moves"] is not kept["moves"]


def asked(registry: CollectorRegistry, **environ: str) -> tuple[str, dict[str, str], bytes]:
    said: list[Any] = []
    common = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"}
    (body,) = wsgi_app(registry)(common | environ, lambda *answer: said.extend(answer))
    return said[0], dict(said[1]), body


def test_it_is_compressed_for_those_who_take_that() -> None:
    registry = filled().registry
    status, headers, body = asked(registry, HTTP_ACCEPT_ENCODING="gzip")
    assert (status, headers["Content-Encoding"]) == ("200 OK", "gzip")
    plain = asked(registry)
    assert "Content-Encoding" not in plain[1] and gzip.decompress(body) == plain[2]


def test_what_else_can_be_asked_the_library_answers() -> None:
    registry = filled().registry
    _, _, body = asked(registry, QUERY_STRING="name[]=holdfast_incidents_total")
    names = {line.partition("{")[0] for line in body.decode().splitlines() if not line.startswith("#")}
    assert names == {"holdfast_incidents_total"}, "also of what stands at 0"
    assert asked(registry, REQUEST_METHOD="POST")[0].startswith("405")
    assert asked(registry, PATH_INFO="/favicon.ico")[2] == b""
