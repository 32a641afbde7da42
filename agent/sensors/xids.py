"""Count the Xid errors that NVIDIA's driver writes into the kernel's log, by device and number.

They are counted from the moment on at which this is made: those of before may be of a device that was reset
since. `docs.nvidia.com/deploy/xid-errors` says what the numbers mean."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from agent.host.kernel_log import KernelRecords
from agent.sensors.pci import pci_address
from agent.sensors.readings import DeviceReading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

XID = "xid_"
"""How the figure of a number begins."""
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-f:.]{7,20})\): (\d{1,4})\b", re.IGNORECASE)
_KINDS_MAX = 256
"""Devices and numbers that are told apart; more of them are not the work of a driver."""
log = logging.getLogger("holdfast.agent")


class XidCounts:
    """The Xid errors since this was made, as far as the kernel's log can be read."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._records = KernelRecords(path, _LINE)
        self._counts: Counter[tuple[str, str]] = Counter()  # by address and number
        self._told = ""

    def added(self, readings: Sequence[DeviceReading], devices: Mapping[str, str]) -> list[DeviceReading]:
        """The readings with the Xid errors of each device. `devices`: which one is at an address.

        An address at which no device is known (one that fell off the bus before) has a reading of its own."""
        for line in self._records.new():
            found = _LINE.search(line)
            kind = (pci_address(found[1]), f"{XID}{int(found[2])}") if found is not None else None
            if kind is not None and (kind in self._counts or len(self._counts) < _KINDS_MAX):
                self._counts[kind] += 1
        figures: dict[str, dict[str, float]] = {}
        for (address, number), count in self._counts.items():
            figures.setdefault(devices.get(address, f"pci {address}"), {})[number] = float(count)
        unknown = self._unread()
        found_here = [
            dataclasses.replace(
                each,
                figures=each.figures | figures.pop(each.device, {}),
                unknown=(*each.unknown, *unknown),
            )
            for each in readings
        ]
        return found_here + [
            DeviceReading(name, True, figures=rest, judged=False) for name, rest in figures.items()
        ]

    def _unread(self) -> tuple[str, ...]:
        """Why Xid errors are not known, which is logged once; (): they are."""
        reason = self._records.reason
        if reason and reason != self._told:
            self._told = reason
            log.info("Xid errors of the devices are not known: %s", reason)
        return (f"Xid errors ({reason})",) if reason else ()
