"""Measure how busy the machine is during a benchmark."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

_PRESSURE = Path("/proc/pressure/cpu")


class LoadMeter:
    """Samples the load average, and the share of time in which some task waited for a CPU (Linux PSI)."""

    def __init__(self) -> None:
        self._averages = [os.getloadavg()[0]]
        self._started, self._waited_s = time.monotonic(), _waited_s()

    def sample(self) -> None:
        """Take a sample of the load average."""
        self._averages.append(os.getloadavg()[0])

    def result(self) -> dict[str, float | None]:
        """`average_1min` (median of the samples), `cpu_pressure` (0 to 1; None without PSI), `cpus`."""
        waited_s, elapsed_s = _waited_s(), time.monotonic() - self._started
        pressure = None
        if waited_s is not None and self._waited_s is not None and elapsed_s:
            pressure = round((waited_s - self._waited_s) / elapsed_s, 3)
        return {
            "average_1min": round(statistics.median(self._averages), 2),
            "cpu_pressure": pressure,
            "cpus": float(len(os.sched_getaffinity(0))),
        }


def _waited_s() -> float | None:
    if not _PRESSURE.exists():
        return None
    return int(_PRESSURE.read_text().splitlines()[0].rsplit("total=", 1)[1]) / 1e6
