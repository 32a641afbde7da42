"""Say what to do about each kind of finding that the rules of the cluster's health make."""

from __future__ import annotations

_ETCD = "Repair etcd: look at its members, its disks and its quota."
REMEDIES: dict[str, str] = {
    "mass_loss": "Look at the network between the coordinator and the nodes.",
    "dcs_unavailable": _ETCD,
    "nodes_lost": "Look whether these nodes and their agents run and reach the coordinator.",
    "incidents": "Read in `holdfast why` what the newest incidents have in common.",
    "node_quarantined": "Repair the node, then run `holdfast quarantine --release NODE`.",
    "node_held": "Look at the node's network, and at why its agent comes and goes.",
    "device_unhealthy": "Make room on a full disk. Else see errors in the kernel's log; reset or replace it.",
    "node_part_broken": "Repair or replace this part of the node, then have the node checked again.",
    "node_part_slow": "Look at clocks, temperature, power and other processes of the node.",
    "node_unchecked": "Look in the log of the node's agent why its check brought nothing.",
    "unknown_job": "If etcd lost its data: adopt the job's checkpoints, then submit it; that ends these.",
    "node_unreplaced": "Replace the node by hand, or allow the coordinator to have the platform replace it.",
    "row_unreadable": "Repair this row of etcd, or delete it.",
    "job_parked": "Bring the nodes that the job waits for, or add others.",
    "spares_exhausted": "Read the log of the spares that died, and repair what ends them.",
    "rank_unstarted": "Make room on its node where the reason says; it is tried again every 10 s.",
    "job_undecided": _ETCD,
    "checkpoints_failing": "Look at the storage of the job: room, credentials, network.",
    "checkpoint_late": "Look in `holdfast events` what the checkpoint waits for.",
    "snapshots_failing": "Give the nodes more memory for snapshots, or have each rank hold less state.",
    "mirror_failing": "Look at the second storage of the job: room, credentials, network.",
    "marks_failing": "Let the storage take marks, or bring the agents to this version.",
    "checkpoints_overdue": "Look at the pace of the job's steps, and at its storage.",
    "snapshots_overdue": "Look at the pace of the job's steps, and at what its ranks do between them.",
    "health_rule_failed": "Report this error: it is a bug of Holdfast.",
}
"""What to do, by kind of finding. Findings of diagnosis bring recommendations of their own."""
