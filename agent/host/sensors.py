"""Read the health of a node's devices. Another kind of device is another class with `read`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_BYTES_MIN = 32 << 20
"""With less memory available the machine counts as unhealthy."""
DISK_BYTES_MIN = 8 << 20
"""With less room on the run folder's disk the machine counts as unhealthy."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What one device shows now. `figures`: numbers by name, with the unit in the name."""

    device: str
    healthy: bool
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class Sensor(Protocol):
    """Reads some devices, in a thread: `read` may block and may raise OSError.

    A device without a reading for the device timeout counts as bad."""

    def read(self) -> list[DeviceReading]:
        """Return one reading per device."""


class HostSensor:
    """The machine itself: cores, memory, and the disk that holds the run folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cores = len(os.sched_getaffinity(0))

    def read(self) -> list[DeviceReading]:
        """Read cores, memory and disk. Raises OSError when the kernel gives no figures."""
        return [self._read_cores(), _read_memory(), self._read_disk()]

    def _read_cores(self) -> DeviceReading:
        cores = len(os.sched_getaffinity(0))
        reason = f"{cores} cores are left of {self._cores}" if cores < self._cores else ""
        return DeviceReading("cores", not reason, reason, {"cores": cores, "load_1m": os.getloadavg()[0]})

    def _read_disk(self) -> DeviceReading:
        found = os.statvfs(self._folder)
        free = found.f_bavail * found.f_frsize
        reason = f"{free} bytes are free at {self._folder}" if free < DISK_BYTES_MIN else ""
        figures = {"free_bytes": float(free), "total_bytes": float(found.f_blocks * found.f_frsize)}
        return DeviceReading("disk", not reason, reason, figures)


def _read_memory() -> DeviceReading:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    free, total = kib["MemAvailable"] << 10, kib["MemTotal"] << 10
    reason = f"{free} bytes of memory are available" if free < MEMORY_BYTES_MIN else ""
    return DeviceReading("memory", not reason, reason, {"free_bytes": free, "total_bytes": total})


class NvmlSensor:
    """NVIDIA devices, by NVML. Made only where the module pynvml is installed and finds a driver."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self.count: int = nvml.nvmlDeviceGetCount()

    def read(self) -> list[DeviceReading]:
        """Read every device. One that NVML cannot read is bad, with NVML's error as the reason."""
        return [self._read(index) for index in range(self.count)]

    def _read(self, index: int) -> DeviceReading:
        nvml, device = self._nvml, f"gpu{index}"
        try:
            figures = self._figures(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError as error:
            return DeviceReading(device, False, f"NVML: {error}")
        errors = figures.setdefault("uncorrected_errors", 0.0)
        reason = f"{errors:.0f} uncorrected memory errors since the driver was loaded" if errors else ""
        return DeviceReading(device, not reason, reason, figures)

    def _figures(self, handle: Any) -> dict[str, float]:
        """What the device reports, without what its kind does not have (utilization, on a MIG partition)."""
        nvml, figures = self._nvml, dict[str, float]()
        asked: dict[str, Callable[[], Any]] = {
            "used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "uncorrected_errors": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
        }
        for name, ask in asked.items():
            with contextlib.suppress(nvml.NVMLError_NotSupported):
                figures[name] = float(ask())
        return figures


def nvml_sensor() -> NvmlSensor | None:
    """The sensor of this node's NVIDIA devices; None where none can be read."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    nvml = importlib.import_module("pynvml")
    try:
        sensor = NvmlSensor(nvml)
    except nvml.NVMLError:
        return None
    return sensor if sensor.count else None


def found_sensors(folder: Path) -> list[Sensor]:
    """All sensors of this node."""
    nvml = nvml_sensor()
    return [HostSensor(folder), *([nvml] if nvml is not None else [])]


def slots_here() -> int:
    """How many ranks this node can run: one per device, else one per core."""
    nvml = nvml_sensor()
    return nvml.count if nvml is not None else len(os.sched_getaffinity(0))
