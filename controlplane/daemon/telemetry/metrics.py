"""Define the Prometheus metrics of a coordinator: base units, fixed values of labels."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.core.failures.blame import CLUSTER, PLAN, SCRIPT
from controlplane.core.health import JOB_KINDS
from controlplane.core.records.model import Cause, JobPhase, MemberPhase, Scope, Strategy
from controlplane.core.state.cluster_state import LEFT
from controlplane.daemon.telemetry.making import JOB, MetricMaker
from controlplane.daemon.telemetry.step_metrics import StepMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


PHASES = ("detect", "decide", "fence", "reform", "restore", "first_step")
OUTCOMES = ("recovered", "failed", "stopped")
WHOSE = (SCRIPT, CLUSTER, PLAN)
DROPPED = (
    "malformed", "oversized", "slow_agent", "no_stream", "wrong_version", "wrong_cluster", "bad_name",
    "stale_leader", "not_leader", "refused", "stale", "denied", "unauthenticated",
)  # fmt: skip
CHECKPOINT_FAILURES = ("failed", "skipped", "bad", "unmirrored", "refused")
NODE_STATES = ("expected", "up", "suspect", "lost", LEFT)
ETCD_OPERATIONS = ("commit", "load", "keepalive", "leader")
HEALTH = ("healthy", "degraded", "critical")
LOST = (
    *(cause.value for cause in Cause),
    *("forming", "waiting", "snapshot", "redone", "restore", "startup"),
    *("data", "compile", "evaluate", "checkpoint", "slow_rank"),
)
"""What a job's time is lost to: a failure of this cause; forming without a failure; waiting for nodes;
copying snapshots; repeating steps that a failure had lost; loading state; the time from the beginning of a
generation to its first step. Of the steps themselves: waiting for data, what the script declares with
`session.phase`, and what the slowest rank took longer than a typical one."""
CHECKPOINT_STAGES = ("persist", "commit", "publish")
TIERS = ("memory", "storage", "mirror")
KUBERNETES = (
    "event_create", "event_patch", "node_cordon", "nodes_list", "pod_delete", "pod_get", "pod_label",
)  # fmt: skip

_RECOVERY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ETCD_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_STEP_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_STALL_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CHECKPOINT_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics(StepMetrics):
    """All metrics of one coordinator process, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        make = MetricMaker(self.registry)
        self.build_info = make.gauge("build_info", "Version of this coordinator.", "version", "python")
        self.build_info.labels(version, platform.python_version()).set(1)
        self._make_leadership(make)
        self._make_cluster(make)
        self._make_failures(make)
        self._make_jobs(make)
        self._make_steps(make)
        self._make_checkpoints(make)
        self._make_process(make)
        self._member_rows: set[tuple[str, str]] = set()
        self._of_jobs = make.of_jobs
        self._kinds: dict[str, dict[str, None]] = {}  # by job: every kind of trouble shown so far
        self._leader = ""
        self._make_all()

    def _make_leadership(self, make: MetricMaker) -> None:
        self.leader = make.gauge("leader", "1 while this coordinator leads.")
        self.leader_term = make.gauge(
            "leader_term", "Number of the leader term of this coordinator; 0: it does not lead."
        )
        self.leader_changes_total = make.counter(
            "leader_changes_total", "Times that this coordinator saw another leader than before."
        )
        self.etcd_request_seconds = make.histogram(
            "etcd_request_seconds", "Duration of requests to etcd.", _ETCD_BUCKETS_S, "operation"
        )
        self.etcd_errors_total = make.counter("etcd_errors_total", "Failed requests to etcd.", "operation")

    def _make_cluster(self, make: MetricMaker) -> None:
        self.members = make.gauge("members", "Members by level (node, process) and state.", "level", "state")
        self.spare_nodes = make.gauge("spare_nodes", "Nodes that are up, eligible for ranks, without a rank.")
        self.quarantined_nodes = make.gauge(
            "quarantined_nodes", "Nodes that get ranks only when no other is left."
        )
        self.cluster_health = make.gauge("cluster_health", "1 for the state the cluster is in.", "state")
        self.heartbeats_total = make.tally("heartbeats_total", "Heartbeats of agents.")
        self.heartbeats_relayed_total = make.tally(
            "heartbeats_relayed_total", "Heartbeats of agents that came through another agent."
        )
        self.beat_relays = make.gauge("beat_relays", "Agents that pass on heartbeats of others.")
        self.heartbeat_lag_seconds = make.gauge(
            "heartbeat_lag_seconds", "Time since the most silent node that counts as up was heard."
        )
        self.agent_connections = make.gauge("agent_connections", "Streams of admitted agents.")

    def _make_failures(self, make: MetricMaker) -> None:
        self.failures_detected_total = make.job_counter(
            "failures_detected_total", "Verdicts by extent and cause.", level=Scope, cause=Cause
        )
        self.detection_seconds = make.job_histogram(
            "detection_seconds",
            "Time from a failure until the coordinator knows of it.",
            _RECOVERY_BUCKETS_S,
        )
        self.incidents_total = make.job_counter(
            "incidents_total",
            "Closed incidents by strategy and outcome; `whose`: caused by the script, by the cluster, or "
            "planned, where nothing failed.",
            strategy=Strategy,
            outcome=OUTCOMES,
            whose=WHOSE,
        )
        self.recovery_seconds = make.job_histogram(
            "recovery_seconds",
            "Duration of an incident's phases; planned changes do not count.",
            _RECOVERY_BUCKETS_S,
            phase=PHASES,
        )

    def _make_jobs(self, make: MetricMaker) -> None:
        job = JOB
        self.job_phase = make.gauge("job_phase", "1 for the phase a job is in.", job, "phase")
        self.job_health = make.gauge(
            "job_health", "1 for the state a job is in; 0 for all when it is over.", job, "state"
        )
        self.job_trouble = make.gauge(
            "job_trouble", "1 for each thing that is wrong with a job.", job, "kind"
        )
        self.generation = make.gauge("generation", "A job's newest generation.", job)
        self.step = make.gauge("step", "Steps completed by every rank of a job.", job)
        self.step_seconds = make.job_histogram(
            "step_seconds",
            "Mean duration of a step, observed once a second while there is progress.",
            _STEP_BUCKETS_S,
        )
        self.last_progress_timestamp_seconds = make.gauge(
            "last_progress_timestamp_seconds", "When a job's step last grew (Unix time).", job
        )
        self.productive_seconds_total = make.job_counter(
            "productive_seconds_total", "Time a job trained, without what was lost later."
        )
        self.lost_seconds_total = make.job_counter(
            "lost_seconds_total", "Time a job did not train, or trained what was lost later.", cause=LOST
        )
        self.unknown_seconds_total = make.job_counter(
            "unknown_seconds_total",
            "The part of a job's productive time of which nobody knows whether steps were made.",
        )
        self.steps_lost_total = make.job_counter(
            "steps_lost_total", "Steps that were completed, lost and run again."
        )
        self.snapshot_stall_seconds = make.job_histogram(
            "snapshot_stall_seconds", "How long a snapshot kept a rank from training.", _STALL_BUCKETS_S
        )

    def _make_checkpoints(self, make: MetricMaker) -> None:
        job = JOB
        self.checkpoint_last_success_timestamp_seconds = make.gauge(
            "checkpoint_last_success_timestamp_seconds",
            "When a job's newest copy of its state became whole in a tier (Unix time); for a job with a "
            "storage that has none yet, since when this leader waits for it.",
            job,
            "tier",
            "kind",
        )
        self.checkpoint_seconds = make.job_histogram(
            "checkpoint_seconds",
            "Duration of a checkpoint's stages.",
            _CHECKPOINT_BUCKETS_S,
            stage=CHECKPOINT_STAGES,
        )
        self.checkpoint_bytes_total = make.job_counter(
            "checkpoint_bytes_total", "Bytes written for committed checkpoints."
        )
        self.checkpoint_size_bytes = make.gauge(
            "checkpoint_size_bytes", "Size of the newest committed checkpoint's state.", job
        )
        self.checkpoint_failures_total = make.job_counter(
            "checkpoint_failures_total",
            "Checkpoints that were not committed, or found bad.",
            reason=CHECKPOINT_FAILURES,
        )
        self.checkpoint_failures_in_a_row = make.gauge(
            "checkpoint_failures_in_a_row", "Checkpoints that failed since one was committed.", job
        )
        self.checkpoint_fallbacks_total = make.job_counter(
            "checkpoint_fallbacks_total", "Checkpoints found bad, so that an older one was used."
        )
        self.checkpoint_repairs_total = make.job_counter(
            "checkpoint_repairs_total", "Background scrubs that repaired damaged data."
        )
        self.checkpoint_collected_total = make.job_counter(
            "checkpoint_collected_total", "Checkpoints that retention removed."
        )

    def _make_process(self, make: MetricMaker) -> None:
        self.event_loop_lag_seconds = make.gauge(
            "event_loop_lag_seconds", "How late the event loop was in the last second, at most."
        )
        self.agents_waiting = make.gauge("agents_waiting", "Agents that wait for their turn to be greeted.")
        self.messages_dropped_total = make.counter(
            "messages_dropped_total", "Messages that were dropped.", "reason"
        )
        self.alerts_total = make.counter(
            "alerts_total", "Alerts posted to the webhook, by outcome.", "outcome"
        )
        self.kubernetes_requests_total = make.counter(
            "kubernetes_requests_total",
            "Requests to the Kubernetes API by purpose and answer.",
            "what",
            "outcome",
        )
        self.dcs_unavailable = make.gauge("dcs_unavailable", "1 while etcd does not answer the leader.")
        self.journal_lines_lost = make.gauge(
            "journal_lines_lost", "Lines of the journal that could not be written."
        )
        self.events_total = make.tally("events_total", "Events that the core has processed.", "type")
        self.core_step_seconds = make.spread(
            "core_step_seconds", "Duration of one step of the core.", (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1)
        )

    def _make_all(self) -> None:
        """Create every series whose labels are known: a rate over an absent series shows nothing."""
        _create(self.messages_dropped_total, DROPPED)
        _create(self.alerts_total, ("sent", "failed"))
        _create(self.etcd_request_seconds, ETCD_OPERATIONS)
        _create(self.members, ("node",), NODE_STATES)
        _create(self.members, ("process",), MemberPhase)
        _create(self.etcd_errors_total, ETCD_OPERATIONS)
        _create(self.cluster_health, HEALTH)
        _create(self.kubernetes_requests_total, KUBERNETES, ("ok", "unanswered"))

    def know_job(self, job: str) -> None:
        """Show every counter and histogram of a job from now on, also those at 0."""
        for family in self._of_jobs:
            family.know(job)

    def saw_leader(self, address: str) -> None:
        """Count a change of leader."""
        if address and self._leader and address != self._leader:
            self.leader_changes_total.inc()
        self._leader = address or self._leader

    def saw_etcd(self, operation: str, duration_s: float, failed: bool) -> None:
        """Count a request to etcd."""
        self.etcd_request_seconds.labels(operation).observe(duration_s)
        if failed:
            self.etcd_errors_total.labels(operation).inc()

    def saw_alert(self, outcome: str) -> None:
        """Count a post of alerts: sent or failed."""
        self.alerts_total.labels(outcome).inc()

    def saw_kubernetes(self, what: str, outcome: str) -> None:
        """Count a request to the Kubernetes API; `outcome`: ok, the status, or unanswered."""
        self.kubernetes_requests_total.labels(what, outcome).inc()

    def show_health(self, level: str) -> None:
        """Set the one state that the cluster is in; "" when this coordinator does not know."""
        for each in HEALTH:
            self.cluster_health.labels(each).set(each == level)

    def forget_state(self) -> None:
        """Clear what only a leader knows, after leadership. Counters stay."""
        for gauge in (
            *(self.job_phase, self.generation, self.step, self.last_progress_timestamp_seconds),
            *(self.checkpoint_last_success_timestamp_seconds, self.checkpoint_size_bytes),
            *(self.job_health, self.job_trouble, self.checkpoint_failures_in_a_row),
        ):
            gauge.clear()
        self.forget_steps()
        for plain in (self.spare_nodes, self.quarantined_nodes, self.heartbeat_lag_seconds):
            plain.set(0)
        self.show_members({})
        self.show_health("")

    def show_members(self, counts: dict[tuple[str, str], int]) -> None:
        """Set the members' gauge to these counts by (node or process, state), and to 0 elsewhere."""
        for row in self._member_rows - counts.keys():
            self.members.labels(*row).set(0)
        for row, count in counts.items():
            self.members.labels(*row).set(count)
        self._member_rows |= counts.keys()

    def show_job_health(self, job: str, level: str, kinds: Collection[str], in_a_row: int) -> None:
        """Set the health of a job, the kinds of its troubles, and how many checkpoints failed in a row."""
        for each in HEALTH:
            self.job_health.labels(job, each).set(each == level)
        seen = self._kinds.setdefault(job, dict.fromkeys(JOB_KINDS))
        seen |= dict.fromkeys(kinds)
        for kind in seen:
            self.job_trouble.labels(job, kind).set(kind in kinds)
        self.checkpoint_failures_in_a_row.labels(job).set(in_a_row)

    def show_job_phase(self, job: str, phase: JobPhase) -> None:
        """Set the one phase that a job is in."""
        for each in JobPhase:
            self.job_phase.labels(job, each.value).set(each is phase)


def _create(metric: Counter | Gauge | Histogram, *values: Iterable[str]) -> None:
    label: Callable[..., object] = metric.labels
    rows: list[tuple[str, ...]] = [()]
    for column in values:
        rows = [(*row, str(value)) for row in rows for value in column]
    for row in rows:
        label(*row)
