"""Take the place of NVIDIA's driver, which this machine lacks: two devices with a health set by a file.

Each line of the file HOLDFAST_TEST_DEVICES is the number of a device that cannot be read any more. This
replaces hardware, behind the functions that `agent.host.sensors` calls; nothing of Holdfast is replaced."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = 0


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
    if str(index) in Path(os.environ["HOLDFAST_TEST_DEVICES"]).read_text().split():
        raise NVMLError("GPU is lost")
    return index


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """The memory of a small device."""
    return SimpleNamespace(used=1 << 20, total=1 << 30)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    """A moderate temperature."""
    return 40


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    """In use for half of the time."""
    return SimpleNamespace(gpu=50)


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:
    """No errors."""
    return 0
