"""Declare the settings of diagnosis: how often jobs are judged, and the limits that administrators may set.

Every default is the one of `Thresholds`, so that it stands in one place only."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.diagnosis import Thresholds
from controlplane.setting import setting

_LIMITS = Thresholds()


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class DiagnosisSettings:
    """The settings that the diagnosis of running jobs is made with."""

    diagnose_every_s: float = setting(
        5.0,
        "how often the running jobs are diagnosed: who is slow, where the time of a step goes; 0: never",
        unit="s",
        minimum=0,
    )
    link_probes: bool = setting(
        True,
        "have agents measure the links between the nodes of a job, in short bursts, when its communication "
        "takes longer than its ranks explain",
    )
    slow_rank_ratio: float = setting(
        _LIMITS.slow_ratio,
        "a rank is slow when its own work takes this many times as long as that of its peers",
        minimum=1.01,
    )
    communication_ratio: float = setting(
        _LIMITS.communication,
        "communication is a bottleneck when it takes more than this share of a step on all ranks",
        minimum=0.01,
    )
    device_use_ratio: float = setting(
        _LIMITS.device_used,
        "devices are underused when they compute for less than this share of the time",
        minimum=0.01,
    )
    memory_ratio: float = setting(
        _LIMITS.memory,
        "memory is nearly full when more than this share of its limit is used",
        minimum=0.01,
    )
    fragmented_ratio: float = setting(
        _LIMITS.fragmented,
        "a device's memory is fragmented when more than this share of what torch's allocator holds was never "
        "used at once, and the device is nearly full",
        minimum=0.01,
    )


def thresholds(settings: DiagnosisSettings) -> Thresholds:
    """The limits of diagnosis as these settings have them."""
    return Thresholds(
        slow_ratio=settings.slow_rank_ratio,
        communication=settings.communication_ratio,
        device_used=settings.device_use_ratio,
        memory=settings.memory_ratio,
        fragmented=settings.fragmented_ratio,
    )
