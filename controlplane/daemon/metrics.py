"""What an operator needs to see of a coordinator, as Prometheus metrics. Base units, fixed label values."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from controlplane.core.model import Cause, JobPhase, MemberPhase, Scope, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

PHASES = ("detect", "decide", "fence", "reform", "restore", "first_step")
OUTCOMES = ("recovered", "failed", "superseded")
DROPPED = (
    "malformed", "oversized", "slow_agent", "no_stream", "wrong_version", "wrong_cluster", "bad_name",
    "stale_leader", "not_leader", "refused", "stale",
)  # fmt: skip
CHECKPOINT_FAILURES = ("failed", "skipped", "bad", "unmirrored", "refused")
NODE_STATES = ("expected", "up", "suspect", "lost")
ETCD_OPERATIONS = ("commit", "load")

_RECOVERY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ETCD_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Metrics:
    """All metrics of one coordinator process, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        make = _Maker(self.registry)
        self.build_info = make.gauge("build_info", "Version of this coordinator.", "version", "python")
        self.build_info.labels(version, platform.python_version()).set(1)
        self.leader = make.gauge("leader", "1 while this coordinator leads.")
        self.leader_term = make.gauge("leader_term", "Fencing token of this coordinator's reign, 0: none.")
        self.etcd_request_seconds = make.histogram(
            "etcd_request_seconds", "Duration of requests to etcd.", _ETCD_BUCKETS_S, "operation"
        )
        self.etcd_errors_total = make.counter("etcd_errors_total", "Failed requests to etcd.", "operation")
        self.members = make.gauge("members", "Members by level (node, process) and state.", "level", "state")
        self.heartbeats_total = make.counter("heartbeats_total", "Heartbeats of agents.")
        self.failures_detected_total = make.counter(
            "failures_detected_total", "Verdicts by extent and cause.", "level", "cause"
        )
        self.incidents_total = make.counter(
            "incidents_total", "Closed incidents by strategy and outcome.", "strategy", "outcome"
        )
        self.recovery_seconds = make.histogram(
            "recovery_seconds", "Duration of an incident's phases.", _RECOVERY_BUCKETS_S, "phase"
        )
        self.job_phase = make.gauge("job_phase", "1 for the phase a job is in.", "training_job", "phase")
        self.generation = make.gauge("generation", "A job's newest generation.", "training_job")
        self.step = make.gauge("step", "Steps completed by every rank of a job.", "training_job")
        self.lost_steps_total = make.counter(
            "lost_steps_total", "Steps that were completed, lost and done again.", "training_job"
        )
        self._make_checkpoints(make)
        self.agent_connections = make.gauge("agent_connections", "Streams of admitted agents.")
        self.event_loop_lag_seconds = make.gauge(
            "event_loop_lag_seconds", "How late the event loop was in the last second, at most."
        )
        self.messages_dropped_total = make.counter(
            "messages_dropped_total", "Messages not acted upon.", "reason"
        )
        self.journal_lines_lost = make.gauge("journal_lines_lost", "Lines that could not be written.")
        self.events_total = make.counter("events_total", "Events that the core has taken.", "type")
        self.step_seconds = make.histogram(
            "core_step_seconds", "Duration of one step of the core.", (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1)
        )
        self._member_rows: set[tuple[str, str]] = set()
        self._make_all()

    def _make_checkpoints(self, make: _Maker) -> None:
        self.checkpoint_last_success_timestamp_seconds = make.gauge(
            "checkpoint_last_success_timestamp_seconds",
            "When a job's newest checkpoint was committed (Unix time).",
            "training_job",
        )
        self.checkpoint_failures_total = make.counter(
            "checkpoint_failures_total", "Checkpoints that were not committed, or found bad.", "reason"
        )
        self.checkpoint_fallbacks_total = make.counter(
            "checkpoint_fallbacks_total",
            "Checkpoints found bad: an older one took their place.",
            "training_job",
        )
        self.checkpoint_repairs_total = make.counter(
            "checkpoint_repairs_total", "Background readings that mended what had rotted.", "training_job"
        )
        self.checkpoint_collected_total = make.counter(
            "checkpoint_collected_total", "Checkpoints that retention removed.", "training_job"
        )
        self.checkpoint_written_bytes_total = make.counter(
            "checkpoint_written_bytes_total", "Bytes written for committed checkpoints.", "training_job"
        )
        self.checkpoint_size_bytes = make.gauge(
            "checkpoint_size_bytes", "Size of the newest committed checkpoint's state.", "training_job"
        )

    def _make_all(self) -> None:
        """Create every series whose labels are known: a rate over an absent series shows nothing."""
        _create(self.messages_dropped_total, DROPPED)
        _create(self.checkpoint_failures_total, CHECKPOINT_FAILURES)
        _create(self.recovery_seconds, PHASES)
        _create(self.etcd_request_seconds, ETCD_OPERATIONS)
        _create(self.members, ("node",), NODE_STATES)
        _create(self.members, ("process",), MemberPhase)
        _create(self.etcd_errors_total, ETCD_OPERATIONS)
        _create(self.failures_detected_total, Scope, Cause)
        _create(self.incidents_total, Strategy, OUTCOMES)

    def show_members(self, counts: dict[tuple[str, str], int]) -> None:
        """Set the members' gauge to these counts by level and state, and to 0 where there are none now."""
        for row in self._member_rows - counts.keys():
            self.members.labels(*row).set(0)
        for row, count in counts.items():
            self.members.labels(*row).set(count)
        self._member_rows |= counts.keys()

    def show_job_phase(self, job: str, phase: JobPhase) -> None:
        """Set the one phase that a job is in."""
        for each in JobPhase:
            self.job_phase.labels(job, each.value).set(each is phase)


class MetricsServer:
    """`/metrics` over HTTP, in a thread: it answers even while the event loop is late."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken, or none of this machine's."""
        started: tuple[WSGIServer, Thread] = start_http_server(port, host, metrics.registry)
        self._server, self._thread = started
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


async def watch_lag(metrics: Metrics, interval_s: float = 0.1) -> None:
    """Measure for ever how late this event loop wakes."""
    loop = asyncio.get_running_loop()
    while True:
        worst = 0.0
        for _ in range(10):
            due = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            worst = max(worst, loop.time() - due)
        metrics.event_loop_lag_seconds.set(worst)


class _Maker:
    """Makes metrics with our prefix in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._common: dict[str, Any] = {"namespace": "holdfast", "registry": registry}

    def gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, **self._common)

    def counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, **self._common)

    def histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, about, labels, buckets=buckets, **self._common)


def _create(metric: Counter | Gauge | Histogram, *values: Iterable[str]) -> None:
    label: Callable[..., object] = metric.labels
    rows: list[tuple[str, ...]] = [()]
    for column in values:
        rows = [(*row, str(value)) for row in rows for value in column]
    for row in rows:
        label(*row)
