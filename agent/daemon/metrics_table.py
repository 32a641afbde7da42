"""List the agent's metrics by name, with meaning, kind and labels. docs/metrics.md is made from this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `kind`: gauge or counter (a counter's series end in _total)."""

    kind: str
    about: str
    labels: tuple[str, ...] = ()


JOB, DEVICE, STORAGE = "training_job", "device", "storage"

TALLIES = {
    "uploaded_bytes": Family("counter", "Chunks written to a job's storage", (JOB,)),
    "mirrored_bytes": Family("counter", "Chunks copied to a job's second storage", (JOB,)),
    "mirror_caught_up": Family(
        "counter", "Checkpoints that the second storage lacked and a scrub brought there", (JOB,)
    ),
    "mirror_behind": Family("counter", "Manifests that are not published at the second storage", (JOB,)),
    "stage_seconds": Family("counter", "Time spent in the stages of saving and loading", (JOB, "stage")),
    "scrubbed_bytes": Family("counter", "Read again in the background", (JOB,)),
    "scrub_repaired": Family("counter", "Files that had rotted and were mended", (JOB,)),
    "scrub_failed": Family("counter", "Chunks that have rotted and could not be mended", (JOB,)),
    "collected_bytes": Family("counter", "Freed on storage", (JOB,)),
    "orders_failed": Family(
        "counter", "Orders about snapshots that could not be carried out", (JOB, "order")
    ),
}
"""The counters of snapshot orders, shown as agent_<name>."""

FIGURES = {
    "utilization_percent": ("device_utilization_ratio", 0.01),
    "used_bytes": ("device_memory_used_bytes", 1.0),
    "temperature_celsius": ("device_temperature_celsius", 1.0),
    "uncorrected_errors": ("device_uncorrected_errors", 1.0),
    "free_bytes": ("device_free_bytes", 1.0),
    "total_bytes": ("device_size_bytes", 1.0),
    "cores": ("device_cores", 1.0),
    "load_1m": ("device_load", 1.0),
}
"""Figures of a sensor: the metric that shows each, and the factor to its base unit."""

FAMILIES = {
    "agent_build_info": Family("gauge", "Version of this agent", ("version", "cluster", "node")),
    "agent_connected": Family("gauge", "1 while a coordinator hears this agent"),
    "agent_term": Family("gauge", "Highest term heard of"),
    "agent_members": Family("gauge", "Members by phase", ("phase",)),
    "rank_step": Family("gauge", "Step a rank is in", (JOB, "rank")),
    "rank_reported": Family("gauge", "What the script reports", (JOB, "rank", "name")),
    "agent_beats": Family("counter", "Beats sent to the coordinator"),
    "agent_welcomes": Family("counter", "Streams that a coordinator took"),
    "agent_gate_connections": Family("gauge", "Ranks connected"),
    "agent_dropped": Family("counter", "What was dropped", ("kind",)),
    "agent_events": Family("counter", "What happened on the node", ("kind",)),
    "device_healthy": Family("gauge", "1: the sensor finds it well", (DEVICE,)),
    "device_utilization_ratio": Family("gauge", "Share of time in which it computed (NVML)", (DEVICE,)),
    "device_memory_used_bytes": Family("gauge", "Device memory in use (NVML)", (DEVICE,)),
    "device_temperature_celsius": Family("gauge", "Its temperature (NVML)", (DEVICE,)),
    "device_uncorrected_errors": Family(
        "gauge", "Uncorrected memory errors since the driver was loaded (NVML)", (DEVICE,)
    ),
    "device_free_bytes": Family("gauge", "What is free of it (memory, disk)", (DEVICE,)),
    "device_size_bytes": Family("gauge", "How much it holds in all", (DEVICE,)),
    "device_cores": Family("gauge", "Cores this agent may use", (DEVICE,)),
    "device_load": Family("gauge", "Load of the machine, mean of a minute", (DEVICE,)),
    "device_reading": Family("gauge", "Any other figure that a sensor reads", (DEVICE, "figure")),
    "agent_snapshot_orders": Family("gauge", "Orders about snapshots not done yet", ("queue",)),
    **{f"agent_{name}": family for name, family in TALLIES.items()},
    "agent_storage_limit": Family("gauge", "What a storage cannot promise", (STORAGE, "limit")),
    "agent_storage_bytes": Family("counter", "Moved to and from a storage", (STORAGE, "direction")),
    "agent_storage_busy_seconds": Family(
        "counter", "Time in which a storage was read or written", (STORAGE, "direction")
    ),
    "agent_storage_retries": Family("counter", "Attempts that were made again", (STORAGE, "reason")),
    "agent_peer": Family("counter", "Copies of snapshots between nodes: bytes and events", ("kind",)),
    "agent_peer_waiting": Family("gauge", "Copies not at their partner yet"),
    "agent_peer_copies": Family("gauge", "Copies kept for others"),
}
"""Every metric of the agent, by name without the prefix holdfast_."""
