"""Define the recording and alerting rules of Prometheus as data. `build.py` writes them into the chart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

PREFIX = "Holdfast"
"""Of the name of every alert. The chart has it as `monitoring.prometheusRule.alertPrefix`."""
RUNBOOKS = "https://github.com/holdfast/holdfast/blob/main/docs/runbooks"
"""The folder of the runbooks. The chart has it as `monitoring.prometheusRule.runbookUrl`."""
DAY = "1d"
BY, BY_JOB, ON_JOB = "by (namespace)", "by (namespace, training_job)", "on (namespace, training_job)"
"""One Prometheus may scrape several clusters, by namespace. Where series have none, the label has no
effect."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: when, for how long, how severe, and what it tells a person."""

    name: str
    expression: str
    wait: str  # a Prometheus duration: how long the expression must hold
    severity: str  # critical: wakes somebody; warning: somebody looks today; info: good to know
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The page that tells what to do."""
        return f"{RUNBOOKS}/{self.name}.md"

    def marked(self) -> Alert:
        """The same with the mark of the prefix in its name."""
        return replace(self, name=f"@alertPrefix@{self.name.removeprefix(PREFIX)}")


def spent(window: str) -> str:
    """The seconds that a job spent in a window, training or lost."""
    productive = f"sum by (namespace, training_job) (increase(holdfast_productive_seconds_total[{window}]))"
    lost = f"sum by (namespace, training_job) (increase(holdfast_lost_seconds_total[{window}]))"
    return f"({productive} + {lost})"


def share(window: str) -> str:
    """The share of a job's time in which it trained, less what was lost later; absent when it did not run."""
    productive = f"sum by (namespace, training_job) (increase(holdfast_productive_seconds_total[{window}]))"
    return f"{productive} / ({spent(window)} > 0)"


GONE = 'max by (namespace, state) (holdfast_members{level="node", state=~"lost|suspect"})'
"""Nodes that should be there and are not."""
RECOVERED = 'outcome="recovered",whose!="plan"'
CLUSTERS = 'whose="cluster"'
"""Incidents that neither the script nor a person caused: those that operators can do something about."""
INCIDENTS_A_DAY = f'sum by (namespace) (increase(holdfast_incidents_total{{whose!="plan"}}[{DAY}]))'
RECOVERED_A_DAY = f"sum by (namespace) (increase(holdfast_incidents_total{{{RECOVERED}}}[{DAY}]))"

RECORDS: dict[str, str] = {
    "training_job:holdfast_goodput:ratio5m": share("5m"),
    "training_job:holdfast_ettr:ratio1h": share("1h"),
    "training_job:holdfast_ettr:ratio1d": share(DAY),
    "holdfast_mtbf:seconds1d": f"sum by (namespace) ({spent(DAY)}) / ({INCIDENTS_A_DAY} > 0)",
    "holdfast_mttr:seconds1d": f"sum by (namespace) (increase(holdfast_recovery_seconds_sum[{DAY}]))"
    f" / ({RECOVERED_A_DAY} > 0)",
}
"""Recorded series. Time to repair sums an incident's phases, from the failure to the first step after it."""

MOVING = f'max {BY_JOB} (holdfast_job_phase{{phase=~"running|forming|loading|storing|stopping"}}) == 1'
"""Jobs that should be training."""
TRAINS = f"and {ON_JOB} ({MOVING})"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "HoldfastGoodputLow",
        f"training_job:holdfast_goodput:ratio5m < @goodputLow@ {TRAINS}",
        "15m",
        "warning",
        "{{ $labels.training_job }} trains only {{ $value | humanizePercentage }} of its time",
        "For 15 minutes, too small a share of the job's time went into steps that were kept.",
    ),
    Alert(
        "HoldfastTrainingStalled",
        f"(time() - max {BY_JOB} (holdfast_last_progress_timestamp_seconds) > @trainingStalledSeconds@)"
        f" {TRAINS}",
        "2m",
        "critical",
        "{{ $labels.training_job }} has completed no step for {{ $value | humanizeDuration }}",
        "The job has not ended and does not wait for nodes, but completes no step.",
    ),
    Alert(
        "HoldfastRecoveryLoop",
        f"sum {BY_JOB} (increase(holdfast_incidents_total{{{CLUSTERS},"
        'outcome="recovered"}[10m])) >= @recoveryLoopIncidents@',
        "0s",
        "critical",
        '{{ $labels.training_job }}: {{ $value | printf "%.0f" }} incidents within ten minutes',
        "The job recovers again and again: something that recovery does not fix keeps failing.",
    ),
    Alert(
        "HoldfastRecoverySlow",
        f"sum {BY_JOB} (increase(holdfast_recovery_seconds_sum[30m]))"
        f" / (sum {BY_JOB} (increase(holdfast_incidents_total{{{RECOVERED}}}[30m])) > 0)"
        " > @recoverySlowSeconds@",
        "0s",
        "warning",
        "{{ $labels.training_job }}: recoveries took {{ $value | humanizeDuration }} on average in 30 min",
        "Recoveries, from the failure to the first step after it, take longer than the threshold.",
    ),
    Alert(
        "HoldfastRecoveryFailed",
        "sum by (namespace, training_job, strategy) "
        f'(increase(holdfast_incidents_total{{{CLUSTERS},outcome="failed"}}[10m])) > 0',
        "0s",
        "critical",
        "{{ $labels.training_job }} could not be recovered (strategy {{ $labels.strategy }})",
        "A failure that is not the script's own ended with the job stopped, or with a recovery that did not "
        "succeed.",
    ),
    Alert(
        "HoldfastCheckpointsFailing",
        f"max {BY_JOB} (holdfast_checkpoint_failures_in_a_row) >= @checkpointsFailing@",
        "0s",
        "warning",
        '{{ $labels.training_job }}: {{ $value | printf "%.0f" }} checkpoints in a row have failed',
        "The job's state has not been saved since then: its storage is full, unreachable, or refuses.",
    ),
    Alert(
        "HoldfastSnapshotsStopped",
        f'max {BY_JOB} (holdfast_job_trouble{{kind=~"snapshots_failing|snapshots_overdue"}}) > 0',
        "2m",
        "warning",
        "{{ $labels.training_job }} makes no snapshots",
        "The job trains, but makes no snapshots of its state: a failure loses the steps since the last one.",
    ),
    Alert(
        "HoldfastCheckpointStale",
        f"(time() - max {BY_JOB} "
        '(holdfast_checkpoint_last_success_timestamp_seconds{tier="storage"}) > @checkpointStaleSeconds@)'
        f" {TRAINS}",
        "5m",
        "warning",
        "{{ $labels.training_job }}: the newest checkpoint is {{ $value | humanizeDuration }} old",
        "No checkpoint was committed for a long time, although the job has a storage and trains.",
    ),
    Alert(
        "HoldfastCheckpointFallback",
        f"sum {BY_JOB} (increase(holdfast_checkpoint_fallbacks_total[1h])) > 0",
        "0s",
        "critical",
        "{{ $labels.training_job }}: a checkpoint was found damaged",
        "A checkpoint failed verification, and an older one was used: the storage corrupts or loses data.",
    ),
    Alert(
        "HoldfastNoLeader",
        "(sum by (namespace) (holdfast_leader) == 0) or absent(holdfast_leader)",
        "1m",
        "critical",
        "No coordinator leads",
        "Training goes on, but failures are not recovered and checkpoints are not committed.",
    ),
    Alert(
        "HoldfastSplitLeader",
        "sum by (namespace) (holdfast_leader) > 1",
        "30s",
        "critical",
        "{{ $value }} coordinators claim to lead",
        "The older one is fenced by its leader term and does no harm; check its clock and its process.",
    ),
    Alert(
        "HoldfastEtcdUnavailable",
        "sum by (namespace) (increase(holdfast_etcd_errors_total[2m])) > 0",
        "2m",
        "critical",
        "Requests to etcd fail",
        "Training goes on; recoveries and commits wait for etcd.",
    ),
    Alert(
        "HoldfastSparesExhausted",
        f"(max {BY} (holdfast_spare_nodes) == 0"
        f" and max {BY} (max_over_time(holdfast_spare_nodes[1d])) > 0)"
        f" and on (namespace) (sum {BY} ({GONE}) + max {BY} (holdfast_quarantined_nodes) > 0)"
        " and on (namespace) (sum by (namespace) (holdfast_leader) == 1)",
        "5m",
        "warning",
        "No spare node is left",
        "Nodes are lost or quarantined, and no spare node is left. The next lost node shrinks a job, or "
        "parks it. (A cluster that is merely full, with all nodes healthy, does not raise this alert.)",
    ),
    Alert(
        "HoldfastMembersLost",
        f"sum {BY} ({GONE}) > @membersLost@",
        "2m",
        "warning",
        "{{ $value }} nodes are lost or silent",
        "Nodes of the cluster have been away for two minutes. (Nodes that were shut down in order do not "
        "count.)",
    ),
    Alert(
        "HoldfastNodeQuarantined",
        "max by (namespace) (holdfast_quarantined_nodes) > 0",
        "0s",
        "warning",
        "{{ $value }} nodes are quarantined",
        "These nodes failed too often: until they are released, they get ranks only when no other is free.",
    ),
    Alert(
        "HoldfastCoordinatorSaturated",
        "max by (namespace, instance) (avg_over_time(holdfast_event_loop_lag_seconds[5m]))"
        " > @coordinatorLateSeconds@",
        "5m",
        "warning",
        "Coordinator {{ $labels.instance }} is {{ $value | humanizeDuration }} late",
        "The coordinator's event loop does not keep up: it handles heartbeats and notices failures late.",
    ),
)

THRESHOLDS: dict[str, float] = {
    "goodputLow": 0.8,
    "trainingStalledSeconds": 600,
    "recoveryLoopIncidents": 3,
    "recoverySlowSeconds": 120,
    "checkpointsFailing": 3,
    "checkpointStaleSeconds": 7200,
    "membersLost": 0,
    "coordinatorLateSeconds": 0.5,
}
"""The value of each @name@ in an expression. The chart has them as `monitoring.prometheusRule.thresholds`."""

LEFT_OUT = {
    "StateDivergence": "nothing compares the states of replicas while they train: an alert would have no "
    "series to look at. A copied state is verified byte by byte when it is copied or read."
}
"""Alerts that people may look for, and why there are none."""


def groups(*, marked: bool = False) -> dict[str, Any]:
    """The content of the rules file. `marked`: with the names of the chart's values instead of the values."""
    records = [{"record": name, "expr": expression} for name, expression in RECORDS.items()]
    return {
        "groups": [
            {"name": "holdfast.records", "interval": "30s", "rules": records},
            {"name": "holdfast.alerts", "rules": [_rule(alert, marked) for alert in ALERTS]},
        ]
    }


def placed(expression: str) -> str:
    """An expression with the values of its thresholds."""
    for name, value in THRESHOLDS.items():
        expression = expression.replace(f"@{name}@", f"{value:g}")
    return expression


def _rule(alert: Alert, marked: bool) -> dict[str, Any]:
    runbook = alert.runbook.replace(RUNBOOKS, "@runbookUrl@") if marked else alert.runbook
    return {
        "alert": alert.marked().name if marked else alert.name,
        "expr": alert.expression if marked else placed(alert.expression),
        "for": alert.wait,
        "labels": {"severity": alert.severity, "component": "holdfast"},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": runbook,
        },
    }
