"""Recording and alerting rules of Prometheus, as data. `build.py` writes them where the chart finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RUNBOOKS = "https://github.com/holdfast/holdfast/blob/main/docs/runbooks"
DAY = "1d"
BY, BY_JOB, ON_JOB = "by (namespace)", "by (namespace, training_job)", "on (namespace, training_job)"
"""One Prometheus may scrape several clusters. Where nothing has a namespace, the label changes nothing."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: when, for how long, how bad, and what a person is told."""

    name: str
    expression: str
    wait: str  # a Prometheus duration: how long it must hold
    severity: str  # critical: somebody is woken; warning: somebody looks today; info: it is good to know
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The page that says what to do."""
        return f"{RUNBOOKS}/{self.name}.md"


def spent(window: str) -> str:
    """Seconds that a job spent in a window, trained or lost."""
    productive = f"sum by (namespace, training_job) (increase(holdfast_productive_seconds_total[{window}]))"
    lost = f"sum by (namespace, training_job) (increase(holdfast_lost_seconds_total[{window}]))"
    return f"({productive} + {lost})"


def share(window: str) -> str:
    """The share of a job's time in which it trained, less what was lost later; absent when it did not run."""
    productive = f"sum by (namespace, training_job) (increase(holdfast_productive_seconds_total[{window}]))"
    return f"{productive} / ({spent(window)} > 0)"


PLANNED = "grow|move"
"""Strategies of incidents in which nothing failed."""
INCIDENTS_A_DAY = f'sum by (namespace) (increase(holdfast_incidents_total{{strategy!~"{PLANNED}"}}[{DAY}]))'
RECOVERED_A_DAY = f'sum by (namespace) (increase(holdfast_incidents_total{{outcome="recovered"}}[{DAY}]))'

RECORDS: dict[str, str] = {
    "training_job:holdfast_goodput:ratio5m": share("5m"),
    "training_job:holdfast_ettr:ratio1h": share("1h"),
    "training_job:holdfast_ettr:ratio1d": share(DAY),
    "holdfast_mtbf:seconds1d": f"sum by (namespace) ({spent(DAY)}) / ({INCIDENTS_A_DAY} > 0)",
    "holdfast_mttr:seconds1d": f"sum by (namespace) (increase(holdfast_recovery_seconds_sum[{DAY}]))"
    f" / ({RECOVERED_A_DAY} > 0)",
}
"""Recorded series. Time to repair counts an incident's phases, from the injury to the first step after it."""

MOVING = f'max {BY_JOB} (holdfast_job_phase{{phase=~"running|forming|loading|storing|stopping"}}) == 1'
"""Jobs that ought to train."""

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GoodputLow",
        "training_job:holdfast_goodput:ratio5m < 0.8",
        "15m",
        "warning",
        "{{ $labels.training_job }} trains only {{ $value | humanizePercentage }} of its time",
        "For a quarter of an hour less than 80 % of the job's time went into steps that were kept.",
    ),
    Alert(
        "TrainingStalled",
        "(time() - max by (namespace, training_job) (holdfast_last_progress_timestamp_seconds) > 600)"
        f" and on (namespace, training_job) ({MOVING})",
        "2m",
        "critical",
        "{{ $labels.training_job }} has made no step for {{ $value | humanizeDuration }}",
        "The job is not at its end and not waiting for nodes, and yet no step was completed.",
    ),
    Alert(
        "RecoveryLoop",
        f'sum by (namespace) (increase(holdfast_incidents_total{{strategy!~"{PLANNED}",'
        'outcome=~"recovered|superseded"}[10m])) >= 3',
        "0s",
        "critical",
        '{{ $value | printf "%.0f" }} incidents within ten minutes',
        "The cluster recovers again and again: something that recovery does not mend keeps failing.",
    ),
    Alert(
        "RecoverySlow",
        "sum by (namespace) (increase(holdfast_recovery_seconds_sum[30m]))"
        ' / (sum by (namespace) (increase(holdfast_incidents_total{outcome="recovered"}[30m])) > 0) > 120',
        "0s",
        "warning",
        "Recoveries took {{ $value | humanizeDuration }} on average in the last half hour",
        "From injury to first step, recoveries take more than two minutes.",
    ),
    Alert(
        "RecoveryFailed",
        'sum by (namespace, strategy) (increase(holdfast_incidents_total{outcome="failed"}[10m])) > 0',
        "0s",
        "critical",
        "A job could not be recovered (strategy {{ $labels.strategy }})",
        "An incident ended with the job stopped, or with a recovery that did not succeed.",
    ),
    Alert(
        "CheckpointStale",
        f"(time() - max {BY_JOB} "
        '(holdfast_checkpoint_last_success_timestamp_seconds{tier="storage"}) > 7200)'
        f" and on (namespace, training_job) ({MOVING})",
        "5m",
        "warning",
        "{{ $labels.training_job }}: the newest checkpoint is {{ $value | humanizeDuration }} old",
        "No checkpoint was committed for two hours, although the job has a storage and trains.",
    ),
    Alert(
        "CheckpointFallback",
        "sum by (namespace, training_job) (increase(holdfast_checkpoint_fallbacks_total[1h])) > 0",
        "0s",
        "critical",
        "{{ $labels.training_job }}: a checkpoint was found bad",
        "A checkpoint did not verify and an older one took its place: the storage corrupts, or loses, data.",
    ),
    Alert(
        "NoLeader",
        "(sum by (namespace) (holdfast_leader) == 0) or absent(holdfast_leader)",
        "1m",
        "critical",
        "No coordinator leads",
        "Training goes on, but no failure is recovered from and no checkpoint is committed.",
    ),
    Alert(
        "SplitLeader",
        "sum by (namespace) (holdfast_leader) > 1",
        "30s",
        "critical",
        "{{ $value }} coordinators say that they lead",
        "Terms fence the older one off, so it can do no harm; its clock or its process is in trouble.",
    ),
    Alert(
        "EtcdUnavailable",
        "sum by (namespace) (increase(holdfast_etcd_errors_total[2m])) > 0",
        "2m",
        "critical",
        "Requests to etcd fail",
        "Training goes on; recoveries and commits wait for etcd.",
    ),
    Alert(
        "SparesExhausted",
        f"(max {BY} (holdfast_spare_nodes) == 0"
        f" and max {BY} (max_over_time(holdfast_spare_nodes[1d])) > 0)"
        " and on (namespace) (sum by (namespace) (holdfast_leader) == 1)",
        "5m",
        "warning",
        "No spare node is left",
        "There were spare nodes within the last day. The next lost node shrinks a job, or parks it.",
    ),
    Alert(
        "MembersLost",
        f'sum {BY} (max by (namespace, state) (holdfast_members{{level="node", state=~"lost|suspect"}})) > 0',
        "2m",
        "warning",
        "{{ $value }} nodes are lost or not heard",
        "Nodes that the cluster counts on have been away for two minutes.",
    ),
    Alert(
        "NodeQuarantined",
        "max by (namespace) (holdfast_quarantined_nodes) > 0",
        "0s",
        "warning",
        "{{ $value }} nodes are quarantined",
        "Nodes fail so often that they are taken only when no other is left, until they are released.",
    ),
    Alert(
        "CoordinatorSaturated",
        "max by (namespace, instance) (avg_over_time(holdfast_event_loop_lag_seconds[5m])) > 0.5",
        "5m",
        "warning",
        "Coordinator {{ $labels.instance }} is {{ $value | humanizeDuration }} late",
        "The coordinator's event loop does not keep up: beats are heard late, failures are noticed late.",
    ),
)

LEFT_OUT = {
    "StateDivergence": "nothing compares the states of replicas while they train: an alert would have no "
    "series to look at. A copied state is verified byte by byte when it is copied or read."
}
"""Alerts that people may miss, and why there are none."""


def groups() -> dict[str, Any]:
    """The content of the rules file."""
    records = [{"record": name, "expr": expression} for name, expression in RECORDS.items()]
    return {
        "groups": [
            {"name": "holdfast.records", "interval": "30s", "rules": records},
            {"name": "holdfast.alerts", "rules": [_rule(alert) for alert in ALERTS]},
        ]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.wait,
        "labels": {"severity": alert.severity, "component": "holdfast"},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": alert.runbook,
        },
    }
