"""Take the place of NVIDIA's driver, which this machine lacks: two devices with a health set by a file.

Each line of the file HOLDFAST_TEST_DEVICES is the number of a device that cannot be read any more, or
`remap:N`: a row of the memory of device N is to be replaced. This replaces hardware, behind the functions
that `agent.sensors.nvml` calls; nothing of Holdfast is replaced. Names and values are those of the package
nvidia-ml-py; a function of it that is missing here is one that the driver does not have."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = NVML_VOLATILE_ECC = NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
_SW_POWER_CAP = 0x4


class NVMLError(Exception):
    """As the library's own."""


class NVMLError_NotSupported(NVMLError):
    """As the library's own."""


def nvmlInit() -> None:
    """As the library's own: fails where there is no driver."""
    if "HOLDFAST_TEST_DEVICES" not in os.environ:
        raise NVMLError("no driver")


def nvmlDeviceGetCount() -> int:
    """There are two devices."""
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """Raises NVMLError for a device that has fallen off the bus."""
    if str(index) in _told():
        raise NVMLError("GPU is lost")
    return index


def nvmlDeviceGetPciInfo(handle: int) -> SimpleNamespace:
    """Where it is on the bus."""
    return SimpleNamespace(busId=f"00000000:{0x3B + handle:02X}:00.0")


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """The memory of a small device."""
    return SimpleNamespace(used=1 << 20, total=1 << 30)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    """A moderate temperature."""
    return 40


def nvmlDeviceGetTemperatureThreshold(handle: int, threshold: int) -> int:
    """Those of a server's device."""
    return 89 if threshold == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN else 92


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    """In use for half of the time."""
    return SimpleNamespace(gpu=50)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    """At its limit, in mW."""
    return 300_000


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    """In mW."""
    return 300_000


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:
    """The power cap of the software, as under load."""
    return _SW_POWER_CAP


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:
    """No errors."""
    return 0


def nvmlDeviceGetRemappedRows(handle: int) -> tuple[int, int, int, int]:
    """By corrected errors, by uncorrected ones, whether one is pending, whether one failed."""
    return 0, 0, int(f"remap:{handle}" in _told()), 0


def nvmlDeviceGetPcieReplayCounter(handle: int) -> int:
    """No replays."""
    return 0


def _told() -> list[str]:
    return Path(os.environ["HOLDFAST_TEST_DEVICES"]).read_text().split()
