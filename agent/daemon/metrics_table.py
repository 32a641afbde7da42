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
    "uploaded_bytes": Family("counter", "Bytes of chunks written to a job's storage", (JOB,)),
    "mirrored_bytes": Family("counter", "Bytes of chunks copied to a job's second storage", (JOB,)),
    "mirror_caught_up": Family(
        "counter", "Checkpoints that were missing on the second storage and that a scrub copied there", (JOB,)
    ),
    "mirror_behind": Family("counter", "Failed attempts to bring the second storage up to date", (JOB,)),
    "stage_seconds": Family("counter", "Time spent in the stages of saving and loading", (JOB, "stage")),
    "scrubbed_bytes": Family("counter", "Bytes read again by scrubs", (JOB,)),
    "scrub_repaired": Family("counter", "Damaged files that a scrub repaired", (JOB,)),
    "scrub_failed": Family("counter", "Damaged chunks that a scrub could not repair", (JOB,)),
    "collected_bytes": Family("counter", "Bytes freed on storage", (JOB,)),
    "orders_failed": Family("counter", "Orders about snapshots that failed", (JOB, "order")),
}
"""The counters of snapshot orders, shown as agent_<name>."""

FIGURES = {
    "utilization_percent": ("device_utilization_ratio", 0.01),
    "used_bytes": ("device_memory_used_bytes", 1.0),
    "temperature_celsius": ("device_temperature_celsius", 1.0),
    "uncorrected_errors": ("device_uncorrected_errors", 1.0),
    "corrected_errors": ("device_corrected_errors", 1.0),
    "power_watts": ("device_power_watts", 1.0),
    "power_limit_watts": ("device_power_limit_watts", 1.0),
    "free_bytes": ("device_free_bytes", 1.0),
    "total_bytes": ("device_size_bytes", 1.0),
    "cores": ("device_cores", 1.0),
    "load_1m": ("device_load", 1.0),
}
"""Figures of a sensor: the metric that shows each, and the factor to its base unit."""

_GPU, _HELD = "GPU (NVML)", "1 while clocks are held back"
READINGS = {
    "slowdown_celsius": (_GPU, "From this temperature on the device slows down"),
    "shutdown_celsius": (_GPU, "From this temperature on the device shuts down"),
    "held_by_heat": (_GPU, f"{_HELD} by heat"),
    "held_by_power_brake": (_GPU, f"{_HELD} by the power brake of the machine"),
    "held_by_hardware": (_GPU, f"{_HELD} by the device, which does not say why"),
    "held_by_power_cap": (_GPU, f"{_HELD} by the power limit, as is usual under full load"),
    "remapped_corrected_rows": (_GPU, "Rows of its memory that were replaced after corrected errors"),
    "remapped_uncorrected_rows": (_GPU, "Rows of its memory that were replaced after uncorrected errors"),
    "remap_pending": (_GPU, "1 while a row is to be replaced at the next reset"),
    "remap_failed": (_GPU, "1 if a row could not be replaced"),
    "pcie_replays": (_GPU, "Packets on PCIe that were sent again"),
    "nvlink_replays": (_GPU, "Packets on its active NVLinks that were sent again"),
    "nvlink_recoveries": (_GPU, "Times that an active NVLink was trained anew"),
    "nvlink_crc_errors": (_GPU, "Damaged flow control units on its active NVLinks"),
    "xid_N": (_GPU, "Xid errors of number N in the kernel's log since the agent began"),
    "NAME_errors": ("network", "Errors of interface NAME, received and sent"),
}
"""Figures that `device_reading` shows: the kind of device, and the meaning."""

FAMILIES = {
    "agent_build_info": Family("gauge", "Version of this agent", ("version", "cluster", "node")),
    "agent_connected": Family("gauge", "1 while this agent is connected to a coordinator"),
    "agent_term": Family("gauge", "Newest leader term that this agent knows"),
    "agent_members": Family("gauge", "Processes (ranks and spares) by phase", ("phase",)),
    "rank_step": Family("gauge", "Current step of a rank", (JOB, "rank")),
    "rank_reported": Family(
        "gauge", "Newest value of each number that the script reports", (JOB, "rank", "name")
    ),
    "agent_beats": Family("counter", "Heartbeats sent to the coordinator"),
    "agent_beats_relayed": Family("counter", "Of these, those that went through another agent"),
    "agent_beats_passed_on": Family("counter", "Heartbeats of other nodes that this agent has passed on"),
    "agent_beat_senders": Family("gauge", "Nodes that send their heartbeats through this agent"),
    "agent_welcomes": Family("counter", "Connections that a coordinator accepted"),
    "agent_gate_connections": Family("gauge", "Ranks connected to this agent"),
    "agent_dropped": Family("counter", "Messages and orders that were dropped", ("kind",)),
    "agent_events": Family("counter", "Events on the node", ("kind",)),
    "device_healthy": Family("gauge", "1 while the device is healthy", (DEVICE,)),
    "device_utilization_ratio": Family(
        "gauge", "Share of time in which the device computed (NVML)", (DEVICE,)
    ),
    "device_memory_used_bytes": Family("gauge", "Device memory in use (NVML)", (DEVICE,)),
    "device_temperature_celsius": Family("gauge", "Temperature of the device (NVML)", (DEVICE,)),
    "device_uncorrected_errors": Family(
        "gauge", "Uncorrected memory errors since the driver was loaded (NVML; memory: EDAC)", (DEVICE,)
    ),
    "device_corrected_errors": Family(
        "gauge", "Corrected memory errors since the driver was loaded (NVML; memory: EDAC)", (DEVICE,)
    ),
    "device_power_watts": Family("gauge", "Power that the device draws (NVML)", (DEVICE,)),
    "device_power_limit_watts": Family("gauge", "Power limit that is enforced (NVML)", (DEVICE,)),
    "device_free_bytes": Family("gauge", "Free bytes (memory, disk)", (DEVICE,)),
    "device_size_bytes": Family("gauge", "Size in bytes (memory, disk)", (DEVICE,)),
    "device_cores": Family("gauge", "Cores this agent may use", (DEVICE,)),
    "device_load": Family("gauge", "Load average of the machine over one minute", (DEVICE,)),
    "device_reading": Family(
        "gauge", "Any other value that a sensor reads, see below the table", (DEVICE, "figure")
    ),
    "agent_snapshot_orders": Family(
        "gauge", "Orders about snapshots that are waiting or running", ("queue",)
    ),
    **{f"agent_{name}": family for name, family in TALLIES.items()},
    "agent_storage_limit": Family(
        "gauge", "1 for each guarantee that a storage does not give", (STORAGE, "limit")
    ),
    "agent_storage_bytes": Family(
        "counter", "Bytes read from and written to a storage", (STORAGE, "direction")
    ),
    "agent_storage_busy_seconds": Family(
        "counter", "Time spent reading or writing a storage", (STORAGE, "direction")
    ),
    "agent_storage_retries": Family("counter", "Storage requests that were tried again", (STORAGE, "reason")),
    "agent_peer": Family("counter", "Copies of snapshots between nodes: bytes and events", ("kind",)),
    "agent_peer_waiting": Family("gauge", "Copies that have not reached their replica holder yet"),
    "agent_peer_copies": Family("gauge", "Copies kept for other nodes"),
}
"""Every metric of the agent, by name without the prefix holdfast_."""
