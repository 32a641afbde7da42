"""Find the sensors of this node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.sensors.host import HostSensor
from agent.sensors.nvml import nvml_sensor
from agent.sensors.xids import XidCounts

if TYPE_CHECKING:
    from pathlib import Path

    from agent.sensors.readings import Sensor


def found_sensors(folder: Path) -> list[Sensor]:
    """All sensors of this node."""
    nvml = nvml_sensor(XidCounts())
    return [HostSensor(folder), *([nvml] if nvml is not None else [])]


def slots_here() -> int:
    """How many ranks this node can run: one per device, else one per core."""
    nvml = nvml_sensor()
    return nvml.count if nvml is not None else len(os.sched_getaffinity(0))
