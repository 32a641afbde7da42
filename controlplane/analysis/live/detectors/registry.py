"""List the detectors, in the order in which they look: later ones see what earlier ones have found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.live.detectors import bottlenecks
from controlplane.analysis.live.detectors.crowding import crowding
from controlplane.analysis.live.detectors.job_pace import job_slowed
from controlplane.analysis.live.detectors.nodes_at_risk import nodes_at_risk
from controlplane.analysis.live.detectors.numerics.gradients import exploding_gradients, vanishing_gradients
from controlplane.analysis.live.detectors.numerics.losses import loss_plateau, loss_spike
from controlplane.analysis.live.detectors.numerics.non_finite import non_finite
from controlplane.analysis.live.detectors.resources.checkpoint_times import checkpoint_time_grows
from controlplane.analysis.live.detectors.resources.disks import disk_filling
from controlplane.analysis.live.detectors.resources.fragmentation import memory_fragmented
from controlplane.analysis.live.detectors.resources.leaks import memory_leak
from controlplane.analysis.live.detectors.resources.slow_storage import slow_storage
from controlplane.analysis.live.detectors.silences import telemetry_silent
from controlplane.analysis.live.detectors.slow_links import slow_links
from controlplane.analysis.live.detectors.slow_work import slow_work
from controlplane.analysis.live.detectors.stages import overfull_stages
from controlplane.analysis.live.detectors.step_growth import data_wait_grows, step_time_grows
from controlplane.analysis.live.detectors.uneven import uneven_work
from controlplane.analysis.live.detectors.waits import slow_data, slow_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.core.state.findings import Finding

DETECTORS: dict[str, Callable[[LiveSituation], Iterable[Finding]]] = {
    "slow_work": slow_work,
    "crowding": crowding,
    "overfull_stages": overfull_stages,
    "slow_data": slow_data,
    "slow_snapshot": slow_snapshot,
    "slow_storage": slow_storage,
    "uneven_work": uneven_work,
    "slow_links": slow_links,
    "job_slowed": job_slowed,
    "data_wait_grows": data_wait_grows,
    "step_time_grows": step_time_grows,
    "communication": bottlenecks.communication,
    "idle_devices": bottlenecks.idle_devices,
    "little_memory": bottlenecks.little_memory,
    "memory_fragmented": memory_fragmented,
    "long_tails": bottlenecks.long_tails,
    "memory_leak": memory_leak,
    "checkpoint_time_grows": checkpoint_time_grows,
    "disk_filling": disk_filling,
    "telemetry_silent": telemetry_silent,
    "nodes_at_risk": nodes_at_risk,
    "non_finite": non_finite,
    "exploding_gradients": exploding_gradients,
    "vanishing_gradients": vanishing_gradients,
    "loss_spike": loss_spike,
    "loss_plateau": loss_plateau,
}
"""Everything that is looked for in a running job."""

_GRADIENTS = ("non_finite", "exploding_gradients", "vanishing_gradients", "loss_spike", "loss_plateau")
KINDS: dict[str, tuple[str, ...]] = {
    "slow_work": (
        *("slow_rank", "slow_node", "slow_domain", "slow_replica", "throttled", "heavy_work"),
        "uneven_work",
    ),
    "crowding": ("crowded_cpu", "cpu_throttled"),
    "overfull_stages": ("overfull_stage", "overfull_last_stage"),
    "slow_links": ("slow_link", "slow_node_network", "slow_network"),
    "communication": ("communication_bound",),
    "idle_devices": ("device_underused",),
    "little_memory": ("memory_nearly_full",),
    "long_tails": ("long_tail",),
    "nodes_at_risk": ("node_at_risk",),
    **{
        name: (name,)
        for name in (
            *("slow_data", "slow_snapshot", "slow_storage", "uneven_work", "job_slowed"),
            *("data_wait_grows", "step_time_grows"),
            *("memory_fragmented", "memory_leak", "checkpoint_time_grows", "disk_filling"),
            *("telemetry_silent", *_GRADIENTS),
        )
    },
    "gradients": _GRADIENTS,
    "storage": ("slow_storage",),
    "checkpoints": ("checkpoint_time_grows",),
    "disks": ("disk_filling",),
}
"""The kinds of findings that each detector makes; of the last four, those that detectors make from what
a part of `JobWatch` remembers. While one fails, nothing says that such a finding is over."""
