"""The kernel's counters of errors: files that are missing or odd are absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.sensors.found import found_sensors
from agent.sensors.host import HostSensor
from agent.sensors.nvml import nvml_sensor
from holdfast.node_check import error_counters

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for index, (corrected, uncorrected) in enumerate(((3, 0), (4, 1))):
        folder = tmp_path / f"devices/system/edac/mc/mc{index}"
        folder.mkdir(parents=True)
        (folder / "ce_count").write_text(f"{corrected}\n")
        (folder / "ue_count").write_text(f"{uncorrected}\n")
    for name, is_device in (("eth0", True), ("ib0", True), ("lo", False)):
        statistics = tmp_path / "class/net" / name / "statistics"
        statistics.mkdir(parents=True)
        (statistics / "rx_errors").write_text("5\n")
        (statistics / "tx_errors").write_text("2\n")
        if is_device:
            (tmp_path / "class/net" / name / "device").mkdir()
    return tmp_path


def test_errors_are_summed_over_controllers_and_told_for_each_interface(sysfs: Path, tmp_path: Path) -> None:
    readings = {each.device: each for each in HostSensor(tmp_path, sysfs).read()}
    memory, network = readings["memory"], readings["network"]
    assert memory.figures["corrected_errors"] == 7.0 and memory.figures["uncorrected_errors"] == 1.0
    assert memory.healthy and not memory.unknown
    assert network.figures == {"eth0_errors": 7.0, "ib0_errors": 7.0} and not network.judged


@pytest.mark.parametrize("odd", [b"", b"-1\n", b"many\n", b"\xff\xfe", b"9" * 4000, b"1 2\n"])
def test_what_is_odd_is_absent(sysfs: Path, odd: bytes) -> None:
    (sysfs / "devices/system/edac/mc/mc1/ce_count").write_bytes(odd)
    (sysfs / "class/net/eth0/statistics/rx_errors").write_bytes(odd)
    assert error_counters.memory(sysfs) == {"uncorrected_errors": 1.0}, "no sum over a part of them"
    assert error_counters.network(sysfs) == {"ib0_errors": 7.0}


def test_where_the_kernel_shows_nothing_it_is_not_known(tmp_path: Path) -> None:
    readings = {each.device: each for each in HostSensor(tmp_path, tmp_path / "none").read()}
    assert all(each.healthy for each in readings.values())
    assert readings["memory"].unknown == ("errors of the host's memory (EDAC)",)
    assert readings["network"].unknown == ("errors of network interfaces",)


def test_gpus_that_nobody_can_read_are_not_known(tmp_path: Path) -> None:
    """The driver is loaded, and the package that asks it is not installed, as on machines without a GPU."""
    if nvml_sensor() is not None:
        pytest.skip("the GPUs of this machine can be read")
    assert [type(each) for each in found_sensors(tmp_path, tmp_path / "none")] == [HostSensor]
    _, gpus = found_sensors(tmp_path, tmp_path)
    (reading,) = gpus.read()
    assert "nvidia-ml-py is missing" in reading.unknown[0] and not reading.judged
