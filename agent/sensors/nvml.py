"""Read NVIDIA devices, by NVML (the names are those of the package nvidia-ml-py).

A device whose memory, temperature or use the driver cannot read is bad. All other figures are signs: one that
this kind of device, this driver or this version of the package does not have is absent."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from agent.sensors.pci import pci_address
from agent.sensors.readings import DeviceReading
from holdfast.node_check.nvml import asked, links

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.sensors.xids import XidCounts

SELDOM = 10
"""Counters and thresholds that hardly move are asked for in each 10th reading: some are slow to read."""
UNKNOWN_WITHOUT = {
    "held_by_heat": "why clocks are held back",
    "uncorrected_errors": "uncorrected memory errors",
    "corrected_errors": "corrected memory errors",
    "remap_failed": "remapped memory rows",
    "pcie_replays": "PCIe replays",
}
"""Figures without which something about a device is not known, and what that is."""
_NVLINK = {"nvlink_replays": "REPLAY", "nvlink_recoveries": "RECOVERY", "nvlink_crc_errors": "CRC_FLIT"}
"""Counters of a link, over all active links of a device: the figure, and NVML_NVLINK_ERROR_DL_..."""


class NvmlSensor:
    """NVIDIA devices. Made only where the module pynvml is installed and finds a driver."""

    def __init__(self, nvml: Any, xids: XidCounts | None = None) -> None:
        self._nvml, self._xids = nvml, xids
        nvml.nvmlInit()
        self.count: int = nvml.nvmlDeviceGetCount()
        self._turn = 0
        self._seldom: dict[int, tuple[dict[str, float], tuple[str, ...]]] = {}  # by the device's number
        self._addresses: dict[str, str] = {}  # the device at each address of the PCI bus

    def read(self) -> list[DeviceReading]:
        """Read every device. One that NVML cannot read is bad, with NVML's error as the reason."""
        asks_all, self._turn = self._turn % SELDOM == 0, self._turn + 1
        found = [self._read(index, asks_all) for index in range(self.count)]
        return found if self._xids is None else self._xids.added(found, self._addresses)

    def _read(self, index: int, asks_all: bool) -> DeviceReading:
        nvml, device = self._nvml, f"gpu{index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            figures = self._always(handle)
        except nvml.NVMLError as error:
            self._seldom.pop(index, None)
            return DeviceReading(device, False, f"NVML: {error}")
        figures |= self._clocks(handle)
        if asks_all or index not in self._seldom:
            self._seldom[index] = self._counters(handle)
            self._note_address(device, handle)
        counters, unknown = self._seldom[index]
        figures |= counters
        unknown = (*(words for name, words in UNKNOWN_WITHOUT.items() if name not in figures), *unknown)
        errors = figures.setdefault("uncorrected_errors", 0.0)
        reason = f"{errors:.0f} uncorrected memory errors since the driver was loaded" if errors else ""
        return DeviceReading(device, not reason, reason, figures, unknown)

    def _always(self, handle: Any) -> dict[str, float]:
        """What a device that works can tell, without what its kind does not have (utilization, on a MIG
        partition)."""
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

    def _asked(self, name: str, *arguments: Any) -> Any | None:
        """The answer of an NVML function; None where there is none."""
        return asked(self._nvml, name, *arguments)

    def _clocks(self, handle: Any) -> dict[str, float]:
        """Power, and why clocks are held back: they come and go within seconds."""
        bits = self._asked("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # drivers and packages of before 2023 know it by this name only
            bits = self._asked("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        milliwatts = {
            "power_watts": self._asked("nvmlDeviceGetPowerUsage", handle),
            "power_limit_watts": self._asked("nvmlDeviceGetEnforcedPowerLimit", handle),
        }
        watts = {name: value / 1000 for name, value in milliwatts.items() if value is not None}
        return watts | ({} if bits is None else held_by(bits))

    def _counters(self, handle: Any) -> tuple[dict[str, float], tuple[str, ...]]:
        """Counters of errors and the temperatures from which on a device protects itself; and what of the
        links cannot be read."""
        rows = self._asked("nvmlDeviceGetRemappedRows", handle)
        links, unread = self._links(handle)
        found = {
            "slowdown_celsius": self._asked(
                "nvmlDeviceGetTemperatureThreshold", handle, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"
            ),
            "shutdown_celsius": self._asked(
                "nvmlDeviceGetTemperatureThreshold", handle, "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"
            ),
            "corrected_errors": self._asked(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                "NVML_MEMORY_ERROR_TYPE_CORRECTED",
                "NVML_VOLATILE_ECC",
            ),
            "pcie_replays": self._asked("nvmlDeviceGetPcieReplayCounter", handle),
            **dict(zip(_REMAPPED, rows or (), strict=False)),
            **links,
        }
        return {name: float(value) for name, value in found.items() if value is not None}, unread

    def _links(self, handle: Any) -> tuple[dict[str, float], tuple[str, ...]]:
        """The errors of all active NVLinks, of a device that has some; and what cannot be read."""
        active = [link for link, is_active in links(self._nvml, handle).items() if is_active]
        found, unread = dict[str, float](), False
        for name, kind in _NVLINK.items() if active else ():
            constant = f"NVML_NVLINK_ERROR_DL_{kind}"
            counts = [
                self._asked("nvmlDeviceGetNvLinkErrorCounter", handle, each, constant) for each in active
            ]
            known = [each for each in counts if each is not None]
            if len(known) == len(counts):
                found[name] = float(sum(known))
            else:
                unread = True
        return found, ("NVLink errors",) if unread else ()

    def _note_address(self, device: str, handle: Any) -> None:
        """Remember where on the PCI bus a device is: the kernel's log names it so."""
        found = self._asked("nvmlDeviceGetPciInfo", handle)
        address = getattr(found, "busId", "")
        text = address.decode(errors="replace") if isinstance(address, bytes) else str(address)
        if text:
            self._addresses[pci_address(text)] = device


_REMAPPED = ("remapped_corrected_rows", "remapped_uncorrected_rows", "remap_pending", "remap_failed")
"""What nvmlDeviceGetRemappedRows answers, in its order."""
_SW_POWER_CAP, _HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _HW_POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
"""Bits of nvmlClocksEventReasons (nvml.h). They had other names before, and the same values."""


def held_by(bits: int) -> dict[str, float]:
    """Why clocks are held back, 1 or 0 each.

    `hardware`: by the device itself, which does not say whether by heat, power brake or a power draw that
    rose too fast. The software's power cap is what a device meets under full load."""
    heat, brake = bool(bits & (_SW_THERMAL | _HW_THERMAL)), bool(bits & _HW_POWER_BRAKE)
    return {
        "held_by_heat": float(heat),
        "held_by_power_brake": float(brake),
        "held_by_hardware": float(bool(bits & _HW_SLOWDOWN) and not heat and not brake),
        "held_by_power_cap": float(bool(bits & _SW_POWER_CAP)),
    }


def nvml_sensor(xids: XidCounts | None = None) -> NvmlSensor | None:
    """The sensor of this node's NVIDIA devices; None where none can be read."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    nvml = importlib.import_module("pynvml")
    try:
        sensor = NvmlSensor(nvml, xids)
    except nvml.NVMLError:
        return None
    return sensor if sensor.count else None
