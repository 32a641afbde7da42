"""Read the machine itself: cores, memory with its errors, disk, and errors of its network interfaces."""

from __future__ import annotations

import os
from pathlib import Path

from agent.sensors.readings import DeviceReading
from holdfast.node_check import error_counters

MEMORY_BYTES_MIN = 32 << 20
"""With less memory available the machine counts as unhealthy."""
DISK_BYTES_MIN = 8 << 20
"""With less room on the run folder's disk the machine counts as unhealthy."""
NETWORK = "network"


class HostSensor:
    """The machine itself: cores, memory, the disk that holds the run folder, and network interfaces.

    `sysfs`: where the kernel shows its devices."""

    def __init__(self, folder: Path, sysfs: Path = Path("/sys")) -> None:
        self._folder, self._sysfs = folder, sysfs
        self._cores = len(os.sched_getaffinity(0))

    def read(self) -> list[DeviceReading]:
        """Read everything. Raises OSError when the kernel gives no figures of cores, memory or disk."""
        return [self._read_cores(), self._read_memory(), self._read_disk(), self._read_network()]

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

    def _read_memory(self) -> DeviceReading:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        free, total = kib["MemAvailable"] << 10, kib["MemTotal"] << 10
        reason = f"{free} bytes of memory are available" if free < MEMORY_BYTES_MIN else ""
        figures: dict[str, float] = {"free_bytes": free, "total_bytes": total}
        errors = error_counters.memory(self._sysfs)
        unknown = () if errors else ("errors of the host's memory (EDAC)",)
        return DeviceReading("memory", not reason, reason, {**figures, **errors}, unknown)

    def _read_network(self) -> DeviceReading:
        errors = error_counters.network(self._sysfs)
        unknown = () if errors else ("errors of network interfaces",)
        return DeviceReading(NETWORK, True, "", errors, unknown, judged=False)
