"""Define the dashboards of Grafana: Fleet, Job, Node.

Lines and colours are at the limits of the alerts as they are shipped (rules.py). The dashboards are checked
as documents only: no Grafana was available where they were written."""

from __future__ import annotations

from typing import Any

from grafana import BLUE, GREEN, RED, YELLOW, Board, Panel, documents
from rules import THRESHOLDS

ON_NODE = '* on (instance) group_left (node) holdfast_agent_build_info{node=~"$node"}'
"""Joins an agent's series with the one that names its node."""

JOBS = ("training_job", 'label_values(holdfast_generation{namespace=~"$namespace"}, training_job)')
"""The variable by which panels are narrowed to jobs, and the query for its values."""
YES_NO = ((0, "no", RED), (1, "yes", GREEN))


def mean(histogram: str, by: str = "") -> str:
    """The expression for the mean of a histogram's observations in a window."""
    group = f"sum by ({by})" if by else "sum"
    window = "[$__rate_interval]"
    return f"{group} (rate({histogram}_sum{window})) / {group} (rate({histogram}_count{window}))"


FLEET = Board(
    "Holdfast / Fleet",
    "Is the cluster healthy, and how much of its time goes into training?",
    (
        Panel(
            "Leader",
            "1 while exactly one coordinator leads.",
            (("{{namespace}}", "sum by (namespace) (holdfast_leader)"),),
            now=True,
            span=4,
            words=((0, "none", RED), (1, "one leads", GREEN), (2, "two claim to lead", RED)),
            below=RED,
            limits=((1, GREEN), (2, RED)),
        ),
        Panel(
            "Health",
            "1 for the current health of the cluster.",
            (("{{namespace}} {{state}}", "max by (namespace, state) (holdfast_cluster_health) == 1"),),
            now=True,
            span=4,
            words=((1, "now", BLUE),),
        ),
        Panel(
            "Spare nodes",
            "Nodes that are up and have no rank.",
            (("{{namespace}}", "max by (namespace) (holdfast_spare_nodes)"),),
            now=True,
            span=4,
            below=YELLOW,
            limits=((1, GREEN),),
        ),
        Panel(
            "Quarantined nodes",
            "Nodes that get ranks only when no other node is free.",
            (("{{namespace}}", "max by (namespace) (holdfast_quarantined_nodes)"),),
            now=True,
            span=4,
            limits=((1, YELLOW),),
        ),
        Panel(
            "Time between failures",
            "Mean over one day.",
            (("{{namespace}}", "holdfast_mtbf:seconds1d"),),
            "s",
            now=True,
            span=4,
        ),
        Panel(
            "Time to recover",
            "Mean over one day, from the failure to the first step after it.",
            (("{{namespace}}", "holdfast_mttr:seconds1d"),),
            "s",
            now=True,
            span=4,
            limits=((THRESHOLDS["recoverySlowSeconds"], YELLOW),),
        ),
        Panel(
            "Goodput",
            "Share of a job's time that went into steps that were kept.",
            (("{{training_job}}", "training_job:holdfast_goodput:ratio5m"),),
            "percentunit",
            below=RED,
            limits=((THRESHOLDS["goodputLow"], GREEN),),
            to_job=True,
        ),
        Panel(
            "ETTR of a day",
            "Effective training time ratio.",
            (("{{training_job}}", "training_job:holdfast_ettr:ratio1d"),),
            "percentunit",
            to_job=True,
        ),
        Panel(
            "Nodes by state",
            "As the leader sees them.",
            (("{{namespace}} {{state}}", 'max by (namespace, state) (holdfast_members{level="node"})'),),
            stacked=True,
        ),
        Panel(
            "Incidents an hour",
            "By origin, strategy and outcome.",
            (
                (
                    "{{whose}}: {{strategy}} {{outcome}}",
                    "sum by (whose, strategy, outcome) (increase(holdfast_incidents_total[1h])) > 0",
                ),
            ),
        ),
        Panel(
            "Failures an hour",
            "By cause.",
            (("{{cause}}", "sum by (cause) (increase(holdfast_failures_detected_total[1h])) > 0"),),
        ),
        Panel(
            "Requests to etcd",
            "Mean duration.",
            (("{{operation}}", mean("holdfast_etcd_request_seconds", "operation")),),
            "s",
        ),
        Panel(
            "Heartbeats received",
            "Per second.",
            (("{{instance}}", "rate(holdfast_heartbeats_total[$__rate_interval])"),),
        ),
        Panel(
            "Lag of the coordinators",
            "Lag of the event loop.",
            (("{{instance}}", "holdfast_event_loop_lag_seconds"),),
            "s",
            limits=((THRESHOLDS["coordinatorLateSeconds"], RED),),
        ),
    ),
    (JOBS,),
)

TRAINING = Board(
    "Holdfast / Job",
    "How fast does a job train, and what does it lose time to?",
    (
        Panel(
            "Not healthy",
            "1 for each problem of a job.",
            (
                (
                    "{{training_job}}: {{kind}}",
                    "max by (namespace, training_job, kind) (holdfast_job_trouble) > 0",
                ),
            ),
            words=((1, "yes", RED),),
        ),
        Panel(
            "Failed checkpoints in a row",
            "Since the newest committed one.",
            (
                (
                    "{{training_job}}",
                    "max by (namespace, training_job) (holdfast_checkpoint_failures_in_a_row)",
                ),
            ),
            limits=((1, YELLOW), (THRESHOLDS["checkpointsFailing"], RED)),
        ),
        Panel(
            "Step",
            "Newest step that every rank has completed.",
            (("{{training_job}}", "max by (namespace, training_job) (holdfast_step)"),),
        ),
        Panel(
            "What the script reports",
            "For example the loss; mean over the ranks.",
            (("{{name}}", "avg by (namespace, training_job, name) (holdfast_rank_reported)"),),
        ),
        Panel(
            "Step time",
            "Mean.",
            (("{{training_job}}", mean("holdfast_step_seconds", "namespace, training_job")),),
            "s",
        ),
        Panel(
            "Where a step goes",
            "Share of a typical rank's step.",
            (
                (
                    "{{phase}}",
                    "max by (namespace, training_job, phase) (holdfast_step_phase_ratio)",
                ),
            ),
            "percentunit",
            stacked=True,
        ),
        Panel(
            "Slowdown by slow ranks",
            "A step takes so many times as long as if no rank were slower than its peers.",
            (("{{training_job}}", "max by (namespace, training_job) (holdfast_step_slowdown_ratio)"),),
        ),
        Panel(
            "Recoveries by phase",
            "Seconds of recovery per hour.",
            (
                (
                    "{{phase}}",
                    "sum by (phase) (increase(holdfast_recovery_seconds_sum[1h]))",
                ),
            ),
            "s",
            stacked=True,
        ),
        Panel(
            "Lost time by cause",
            "Share of time.",
            (
                (
                    "{{cause}}",
                    "sum by (cause) (rate(holdfast_lost_seconds_total[$__rate_interval])) > 0",
                ),
            ),
            "percentunit",
            stacked=True,
        ),
        Panel(
            "Steps repeated",
            "In an hour.",
            (
                (
                    "{{training_job}}",
                    "sum by (namespace, training_job) (increase(holdfast_steps_lost_total[1h]))",
                ),
            ),
        ),
        Panel(
            "Age of the newest copy",
            "By tier: in memory, on storage.",
            (
                (
                    "{{tier}}",
                    "time() - max by (namespace, training_job, tier) "
                    "(holdfast_checkpoint_last_success_timestamp_seconds)",
                ),
            ),
            "s",
            limits=((THRESHOLDS["checkpointStaleSeconds"], RED),),
        ),
        Panel(
            "Stages of a checkpoint",
            "Mean duration.",
            (("{{stage}}", mean("holdfast_checkpoint_seconds", "stage")),),
            "s",
        ),
        Panel(
            "Checkpoints written",
            "Bytes in an hour.",
            (
                (
                    "{{training_job}}",
                    "sum by (namespace, training_job) (increase(holdfast_checkpoint_bytes_total[1h]))",
                ),
            ),
            "bytes",
        ),
        Panel(
            "Checkpoints not committed, or damaged",
            "In an hour.",
            (
                (
                    "{{reason}}",
                    "sum by (reason) (increase(holdfast_checkpoint_failures_total[1h])) > 0",
                ),
            ),
        ),
        Panel(
            "Stall of a snapshot",
            "Mean, per rank.",
            (("{{training_job}}", mean("holdfast_snapshot_stall_seconds", "namespace, training_job")),),
            "s",
        ),
        Panel(
            "Generation",
            "Increases by one each time the ranks build new process groups.",
            (("{{training_job}}", "max by (namespace, training_job) (holdfast_generation)"),),
        ),
    ),
    (JOBS,),
)

NODE = Board(
    "Holdfast / Node",
    "What runs on a node, and is the node healthy?",
    (
        Panel(
            "Connected",
            "1 while its agent is connected to a coordinator.",
            (("{{node}}", f"holdfast_agent_connected {ON_NODE}"),),
            now=True,
            words=YES_NO,
            below=RED,
            limits=((1, GREEN),),
        ),
        Panel(
            "Processes by phase",
            "Ranks and spares.",
            (("{{node}} {{phase}}", f"(holdfast_agent_members > 0) {ON_NODE}"),),
            stacked=True,
        ),
        Panel(
            "Step by rank",
            "Shows a rank that is behind the others.",
            (("rank {{rank}}", f"holdfast_rank_step {ON_NODE}"),),
        ),
        Panel(
            "Heartbeats sent",
            "Per second.",
            (("{{node}}", f"rate(holdfast_agent_beats_total[$__rate_interval]) {ON_NODE}"),),
        ),
        Panel(
            "Devices",
            "1 while the device is healthy.",
            (("{{node}} {{device}}", f"holdfast_device_healthy {ON_NODE}"),),
            words=((0, "bad", RED), (1, "healthy", GREEN)),
        ),
        Panel(
            "Device use",
            "Share of time (NVML).",
            (("{{device}}", f"holdfast_device_utilization_ratio {ON_NODE}"),),
            "percentunit",
        ),
        Panel(
            "Device memory",
            "In use (NVML).",
            (("{{device}}", f"holdfast_device_memory_used_bytes {ON_NODE}"),),
            "bytes",
        ),
        Panel(
            "Temperature",
            "NVML.",
            (("{{device}}", f"holdfast_device_temperature_celsius {ON_NODE}"),),
            "celsius",
        ),
        Panel(
            "Uncorrected memory errors",
            "Since the driver was loaded (NVML).",
            (("{{device}}", f"holdfast_device_uncorrected_errors {ON_NODE}"),),
            limits=((1, RED),),
        ),
        Panel(
            "Free",
            "Memory and disk.",
            (("{{node}} {{device}}", f"holdfast_device_free_bytes {ON_NODE}"),),
            "bytes",
        ),
        Panel(
            "Waiting orders about snapshots",
            "By queue; uploads are one queue.",
            (("{{node}} {{queue}}", f"holdfast_agent_snapshot_orders {ON_NODE}"),),
        ),
        Panel(
            "Storage traffic",
            "Bytes per second.",
            (("{{direction}}", f"rate(holdfast_agent_storage_bytes_total[$__rate_interval]) {ON_NODE}"),),
            "Bps",
        ),
    ),
    (("node", 'label_values(holdfast_agent_build_info{namespace=~"$namespace"}, node)'), JOBS),
)

BOARDS = {"fleet": FLEET, "job": TRAINING, "node": NODE}


def boards() -> dict[str, Any]:
    """Every dashboard as the document that Grafana imports, by file name."""
    return documents(BOARDS)
