"""Find the sensors of this node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.sensors.host import HostSensor
from agent.sensors.nvml import nvml_sensor
from agent.sensors.readings import DeviceReading
from agent.sensors.xids import XidCounts

if TYPE_CHECKING:
    from agent.sensors.readings import Sensor

NVIDIA = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver, if it is loaded, has a folder for each GPU."""


class UnreadGpus:
    """GPUs of this node that nobody can read: NVML is missing, or does not reach the driver."""

    def read(self) -> list[DeviceReading]:
        """Say that nothing is known of them."""
        unknown = ("what NVML shows (nvidia-ml-py is missing, or reaches no driver)",)
        return [DeviceReading("gpus", True, unknown=unknown, judged=False)]


def found_sensors(folder: Path, driver: Path = NVIDIA) -> list[Sensor]:
    """All sensors of this node."""
    nvml: Sensor | None = nvml_sensor(XidCounts())
    if nvml is None and driver.is_dir():
        nvml = UnreadGpus()
    return [HostSensor(folder), *([nvml] if nvml is not None else [])]


def slots_here() -> int:
    """How many ranks this node can run: one per device, else one per core."""
    nvml = nvml_sensor()
    return nvml.count if nvml is not None else len(os.sched_getaffinity(0))
