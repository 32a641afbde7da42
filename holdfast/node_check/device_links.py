"""Read through NVML what a device's links have negotiated: PCIe, and NVLink where it has some.

A PCIe link that rests falls back to a slower generation, so NVML is asked while bytes are on their way."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from holdfast.node_check.nvml import asked, links
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_BYTES = 64 << 20
BUSY_COPIES = 32
"""Copies that keep the link busy while NVML is asked: 40 ms on the fastest one."""
NO_PACKAGE = "nvidia-ml-py is not installed here"
_PCIE = {
    "pcie.generation": ("nvmlDeviceGetCurrPcieLinkGeneration", "generations"),
    "pcie.width": ("nvmlDeviceGetCurrPcieLinkWidth", "lanes"),
}


def readings(device: torch.device) -> Iterator[NodeReading]:
    """What the links of one device have negotiated."""
    name = f"{device.type}:{device.index}"
    if importlib.util.find_spec("pynvml") is None:
        yield NodeReading(f"{name}.pcie", None, "", reason=NO_PACKAGE)
        return
    nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(_uuid(device))
    except (nvml.NVMLError, AttributeError, TypeError) as error:  # old packages take bytes alone
        yield NodeReading(f"{name}.pcie", None, "", reason=f"NVML does not tell: {error}"[:200])
        return
    _keep_busy(device)
    yield from found(name, nvml, handle)
    torch.cuda.synchronize(device)


def found(name: str, nvml: Any, handle: Any) -> Iterator[NodeReading]:
    """The readings of the device that NVML knows by this handle."""
    for kind, (function, unit) in _PCIE.items():
        value = asked(nvml, function, handle)
        yield _reading(f"{name}.{kind}", value, unit, "NVML does not tell it of this device")
    known = links(nvml, handle)
    if not known:
        return  # a device without NVLink has no reading of it
    active = sum(known.values())
    yield NodeReading(
        f"{name}.nvlink.links", float(active), "links", reason="" if active else "none is active"
    )
    constant = getattr(nvml, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", None)
    speed = None if constant is None else _field(nvml, handle, constant)
    reason = "NVML does not tell it of this device"
    yield _reading(f"{name}.nvlink.speed", None if speed is None else speed * 1e6, "B/s", reason)


def _reading(name: str, value: float | None, unit: str, reason: str) -> NodeReading:
    if value is None or not value > 0:
        return NodeReading(name, None, unit, reason=reason)
    return NodeReading(name, float(value), unit)


def _field(nvml: Any, handle: Any, constant: int) -> float | None:
    """The value of one field of a device; None: NVML has none."""
    answers = asked(nvml, "nvmlDeviceGetFieldValues", handle, [constant])
    if not answers or answers[0].nvmlReturn != 0:
        return None
    return float(answers[0].value.uiVal)


def _uuid(device: torch.device) -> str:
    """How NVML names a device that torch sees; CUDA_VISIBLE_DEVICES gives torch other numbers."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def _keep_busy(device: torch.device) -> None:
    """Put copies from the host on their way. They are waited for later."""
    sent = torch.zeros(BUSY_BYTES, dtype=torch.uint8).pin_memory()
    got = torch.empty(BUSY_BYTES, dtype=torch.uint8, device=device)
    for _ in range(BUSY_COPIES):
        got.copy_(sent, non_blocking=True)
