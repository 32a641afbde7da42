"""Xid errors of the kernel's log, by device; what is not read is said once."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from agent.sensors.readings import DeviceReading
from agent.sensors.xids import XidCounts

if TYPE_CHECKING:
    from pathlib import Path

WHERE = {"0:9b:00": "gpu0", "0:3b:00": "gpu1"}
READ = [DeviceReading("gpu0", True, figures={"power_watts": 1.0}), DeviceReading("gpu1", False, "NVML: lost")]


def test_they_are_counted_by_device_and_number(tmp_path: Path) -> None:
    """A file holds what the kernel's log would return: one record in each read."""
    log = tmp_path / "kmsg"
    log.write_text("3,1,1,-;NVRM: Xid (PCI:0000:9b:00): 48, pid=7, an older one\n")
    xids = XidCounts(log)
    assert [each.figures for each in xids.added(READ, WHERE)] == [{"power_watts": 1.0}, {}]

    def tell(text: str) -> list[DeviceReading]:
        with log.open("a") as file:
            file.write(f"3,2,2,-;{text}\n")
        return xids.added(READ, WHERE)

    tell("NVRM: Xid (PCI:0000:9b:00): 94, pid=18, Ch 0000000e")
    tell("NVRM: Xid (PCI:0000:9b:00): 94, pid=18, Ch 0000000e")
    tell("NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.")
    tell("usb 1-1: new device; NVRM: loading; Xid 99 in another's words")
    found = tell("NVRM: Xid (PCI:0001:17:00): 63, pid=1896, Row Remapper: New row marked for remapping")
    assert [(each.device, each.figures) for each in found] == [
        ("gpu0", {"power_watts": 1.0, "xid_94": 2.0}),
        ("gpu1", {"xid_79": 1.0}),
        ("pci 1:17:00", {"xid_63": 1.0}),
    ]
    assert not found[1].healthy and not found[2].judged
    assert not any(each.unknown for each in found)


def test_where_the_log_cannot_be_read_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.agent")
    xids = XidCounts(tmp_path / "none")
    for _ in range(3):
        found = xids.added(READ, WHERE)
    assert [len(each.unknown) for each in found] == [1, 1]
    assert found[0].unknown == (f"Xid errors ({tmp_path / 'none'}: No such file or directory)",)
    assert len(caplog.records) == 1


@pytest.mark.skipif(
    not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="the kernel's log is not ours to use"
)
def test_the_kernels_own_log_is_read() -> None:
    """A bus address that no machine has, so that nobody takes it for a device's."""
    xids = XidCounts()
    with open("/dev/kmsg", "w") as file:
        file.write("holdfast tests: NVRM: Xid (PCI:ffff:ff:1f): 13, played\n")
    found = [each for each in xids.added([], {}) if each.device == "pci ffff:ff:1f"]
    assert [each.figures for each in found] == [{"xid_13": 1.0}]
