"""Define the dashboards of Grafana: Fleet, Job, Node.

They are checked as documents only: no Grafana was available where they were written."""

from __future__ import annotations

from typing import Any

from grafana import Board, Panel, documents

JOB = 'training_job=~"$training_job"'
ON_NODE = '* on (instance) group_left (node) holdfast_agent_build_info{node=~"$node"}'
"""Joins an agent's series with the one that names its node."""


def mean(histogram: str, by: str = "", labels: str = "") -> str:
    """The expression for the mean of a histogram's observations in a window."""
    group = f"sum by ({by})" if by else "sum"
    where = f"{{{labels}}}" if labels else ""
    window = "[$__rate_interval]"
    return (
        f"{group} (rate({histogram}_sum{where}{window})) / {group} (rate({histogram}_count{where}{window}))"
    )


FLEET = Board(
    "Holdfast / Fleet",
    "Is the cluster healthy, and how much of its time goes into training?",
    (
        Panel(
            "Leader",
            "1 while exactly one coordinator leads.",
            (("", "sum(holdfast_leader)"),),
            now=True,
            span=4,
        ),
        Panel(
            "Health",
            "1 for the current health of the cluster.",
            (("{{state}}", "max by (state) (holdfast_cluster_health)"),),
            now=True,
            span=4,
        ),
        Panel(
            "Spare nodes",
            "Nodes that are up and have no rank.",
            (("", "max(holdfast_spare_nodes)"),),
            now=True,
            span=4,
        ),
        Panel(
            "Quarantined nodes",
            "Nodes that get ranks only when no other node is free.",
            (("", "max(holdfast_quarantined_nodes)"),),
            now=True,
            span=4,
        ),
        Panel(
            "Time between failures",
            "Mean over one day.",
            (("", "holdfast_mtbf:seconds1d"),),
            "s",
            now=True,
            span=4,
        ),
        Panel(
            "Time to recover",
            "Mean over one day, from the failure to the first step after it.",
            (("", "holdfast_mttr:seconds1d"),),
            "s",
            now=True,
            span=4,
        ),
        Panel(
            "Goodput",
            "Share of a job's time that went into steps that were kept.",
            (("{{training_job}}", "training_job:holdfast_goodput:ratio5m"),),
            "percentunit",
        ),
        Panel(
            "ETTR of a day",
            "Effective training time ratio.",
            (("{{training_job}}", "training_job:holdfast_ettr:ratio1d"),),
            "percentunit",
        ),
        Panel(
            "Nodes by state",
            "As the leader sees them.",
            (("{{state}}", 'max by (state) (holdfast_members{level="node"})'),),
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
        ),
    ),
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
                    f"max by (training_job, kind) (holdfast_job_trouble{{{JOB}}}) > 0",
                ),
            ),
        ),
        Panel(
            "Failed checkpoints in a row",
            "Since the newest committed one.",
            (
                (
                    "{{training_job}}",
                    f"max by (training_job) (holdfast_checkpoint_failures_in_a_row{{{JOB}}})",
                ),
            ),
        ),
        Panel(
            "Step",
            "Newest step that every rank has completed.",
            (("{{training_job}}", f"max by (training_job) (holdfast_step{{{JOB}}})"),),
        ),
        Panel(
            "What the script reports",
            "For example the loss; mean over the ranks.",
            (("{{name}}", f"avg by (training_job, name) (holdfast_rank_reported{{{JOB}}})"),),
        ),
        Panel(
            "Step time",
            "Mean.",
            (("{{training_job}}", mean("holdfast_step_seconds", "training_job", JOB)),),
            "s",
        ),
        Panel(
            "Where a step goes",
            "Share of a typical rank's step.",
            (
                (
                    "{{phase}}",
                    f"max by (training_job, phase) (holdfast_step_phase_ratio{{{JOB}}})",
                ),
            ),
            "percentunit",
            stacked=True,
        ),
        Panel(
            "Slowdown by slow ranks",
            "A step takes so many times as long as if no rank were slower than its peers.",
            (("{{training_job}}", f"max by (training_job) (holdfast_step_slowdown_ratio{{{JOB}}})"),),
        ),
        Panel(
            "Recoveries by phase",
            "Seconds of recovery per hour.",
            (
                (
                    "{{phase}}",
                    f"sum by (phase) (increase(holdfast_recovery_seconds_sum{{{JOB}}}[1h]))",
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
                    f"sum by (cause) (rate(holdfast_lost_seconds_total{{{JOB}}}[$__rate_interval])) > 0",
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
                    f"sum by (training_job) (increase(holdfast_steps_lost_total{{{JOB}}}[1h]))",
                ),
            ),
        ),
        Panel(
            "Age of the newest copy",
            "By tier: in memory, on storage.",
            (
                (
                    "{{tier}}",
                    "time() - max by (training_job, tier) "
                    f"(holdfast_checkpoint_last_success_timestamp_seconds{{{JOB}}})",
                ),
            ),
            "s",
        ),
        Panel(
            "Stages of a checkpoint",
            "Mean duration.",
            (("{{stage}}", mean("holdfast_checkpoint_seconds", "stage", JOB)),),
            "s",
        ),
        Panel(
            "Checkpoints written",
            "Bytes in an hour.",
            (
                (
                    "{{training_job}}",
                    f"sum by (training_job) (increase(holdfast_checkpoint_bytes_total{{{JOB}}}[1h]))",
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
                    f"sum by (reason) (increase(holdfast_checkpoint_failures_total{{{JOB}}}[1h])) > 0",
                ),
            ),
        ),
        Panel(
            "Stall of a snapshot",
            "Mean, per rank.",
            (("{{training_job}}", mean("holdfast_snapshot_stall_seconds", "training_job", JOB)),),
            "s",
        ),
        Panel(
            "Generation",
            "Increases by one each time the ranks build new process groups.",
            (("{{training_job}}", f"max by (training_job) (holdfast_generation{{{JOB}}})"),),
        ),
    ),
    ("training_job", "label_values(holdfast_generation, training_job)"),
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
    ("node", "label_values(holdfast_agent_build_info, node)"),
)

BOARDS = {"fleet": FLEET, "job": TRAINING, "node": NODE}


def boards() -> dict[str, Any]:
    """Every dashboard as the document that Grafana imports, by file name."""
    return documents(BOARDS)
