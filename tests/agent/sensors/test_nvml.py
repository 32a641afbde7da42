"""What the sensor makes of what a driver says. The library is played: most machines have no device."""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.metrics_table import FIGURES, READINGS
from agent.sensors.nvml import SELDOM, UNKNOWN_WITHOUT, NvmlSensor, held_by
from agent.sensors.pci import pci_address

if TYPE_CHECKING:
    from agent.sensors.readings import DeviceReading


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # the library's own name
    pass


CONSTANTS = {
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
    "NVML_VOLATILE_ECC": 0,
    "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN": 0,
    "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
    "NVML_NVLINK_MAX_LINKS": 36,
    "NVML_NVLINK_ERROR_DL_REPLAY": 0,
    "NVML_NVLINK_ERROR_DL_RECOVERY": 1,
    "NVML_NVLINK_ERROR_DL_CRC_FLIT": 2,
}
LACKS = NVMLError_NotSupported("Not Supported")


def links(*active: int) -> Any:
    """The answer for each of the links that a device has; beyond them the library refuses."""

    def ask(_handle: int, link: int) -> int:
        if link >= len(active):
            raise NVMLError("Invalid Argument")
        return active[link]

    return ask


WELL: dict[str, Any] = {
    "MemoryInfo": types.SimpleNamespace(used=3, total=9),
    "Temperature": 40,
    "TemperatureThreshold": lambda _handle, kind: (92, 89)[kind],
    "UtilizationRates": types.SimpleNamespace(gpu=50),
    "TotalEccErrors": lambda _handle, kind, _counter: (7, 0)[kind],
    "PowerUsage": 301_500,
    "EnforcedPowerLimit": 700_000,
    "CurrentClocksEventReasons": 0x4,
    "RemappedRows": (2, 1, 1, 0),
    "PcieReplayCounter": 5,
    "NvLinkState": links(1, 0, 1),
    "NvLinkErrorCounter": lambda _handle, link, counter: 10 * link + counter,
    "PciInfo": types.SimpleNamespace(busId=b"00000000:3B:00.0"),
}
OWN = ("used_bytes", "total_bytes", "temperature_celsius", "utilization_percent", "uncorrected_errors")


def driver(**answers: Any) -> Any:
    """NVML's functions with one device. An answer that is an exception is raised; one that is None, the
    package does not have."""

    def asked(answer: Any) -> Any:
        def ask(*arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return ask

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NVMLError_NotSupported,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        **CONSTANTS,
        **{
            f"nvmlDeviceGet{name}": asked(each)
            for name, each in {**WELL, **answers}.items()
            if each is not None
        },
    )


def read(**changes: Any) -> DeviceReading:
    (reading,) = NvmlSensor(driver(**changes)).read()
    return reading


def test_a_device_that_is_well_tells_its_figures() -> None:
    reading = read()
    assert (reading.device, reading.healthy, reading.unknown) == ("gpu0", True, ())
    assert reading.figures == {
        "used_bytes": 3.0,
        "total_bytes": 9.0,
        "temperature_celsius": 40.0,
        "slowdown_celsius": 89.0,
        "shutdown_celsius": 92.0,
        "utilization_percent": 50.0,
        "uncorrected_errors": 0.0,
        "corrected_errors": 7.0,
        "power_watts": 301.5,
        "power_limit_watts": 700.0,
        "held_by_heat": 0.0,
        "held_by_power_brake": 0.0,
        "held_by_hardware": 0.0,
        "held_by_power_cap": 1.0,
        "remapped_corrected_rows": 2.0,
        "remapped_uncorrected_rows": 1.0,
        "remap_pending": 1.0,
        "remap_failed": 0.0,
        "pcie_replays": 5.0,
        "nvlink_replays": 20.0,
        "nvlink_recoveries": 22.0,
        "nvlink_crc_errors": 24.0,
    }


@pytest.mark.parametrize("absent", [LACKS, NVMLError("Function Not Found"), None], ids=str)
def test_what_a_kind_of_device_or_driver_or_package_has_not_is_absent_and_not_known(absent: Any) -> None:
    """As on one that is cut up (MIG), or a virtual one; `None`: the package is too old to ask."""
    extra = {name: absent for name in WELL if name not in ("MemoryInfo", "Temperature")}
    extra |= {"UtilizationRates": LACKS, "TotalEccErrors": LACKS}
    reading = read(**extra)
    assert reading.healthy, reading.reason
    assert reading.figures.keys() == set(OWN) - {"utilization_percent"}
    assert reading.unknown == tuple(UNKNOWN_WITHOUT.values())


def test_every_figure_is_a_metric_that_is_described() -> None:
    assert read().figures.keys() <= FIGURES.keys() | READINGS.keys()


def test_an_error_of_the_driver_is_the_reason() -> None:
    reading = read(MemoryInfo=NVMLError("GPU is lost"))
    assert (reading.healthy, reading.reason) == (False, "NVML: GPU is lost")
    assert "2 uncorrected" in read(TotalEccErrors=2).reason


def test_links_are_counted_where_they_are_active() -> None:
    assert not read(NvLinkState=links()).unknown, "a device without NVLink lacks nothing"
    assert "nvlink_replays" not in read(NvLinkState=links(0, 0)).figures
    reading = read(NvLinkErrorCounter=LACKS)
    assert reading.unknown == ("NVLink errors",) and "nvlink_replays" not in reading.figures


def test_an_older_driver_knows_the_reasons_by_their_older_name() -> None:
    older = {"CurrentClocksThrottleReasons": 0x40}
    assert read(CurrentClocksEventReasons=None, **older).figures["held_by_heat"] == 1.0
    assert read(CurrentClocksEventReasons=NVMLError("Function Not Found"), **older).figures["held_by_heat"]


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x0, set()),
        (0x1 | 0x2 | 0x10 | 0x100, set()),  # idle, set clocks, sync boost, display
        (0x4, {"power_cap"}),
        (0x8, {"hardware"}),
        (0x8 | 0x40, {"heat"}),
        (0x20, {"heat"}),
        (0x8 | 0x80, {"power_brake"}),
        (0x4 | 0x8 | 0x40 | 0x80, {"power_cap", "heat", "power_brake"}),
    ],
)
def test_why_clocks_are_held_back(bits: int, expected: set[str]) -> None:
    assert {name.removeprefix("held_by_") for name, value in held_by(bits).items() if value} == expected


def test_slow_counters_are_read_in_some_readings_and_told_in_all() -> None:
    answers = itertools.count(1)
    sensor = NvmlSensor(driver(PcieReplayCounter=lambda _handle: next(answers)))
    told = [sensor.read()[0].figures["pcie_replays"] for _ in range(SELDOM + 1)]
    assert told == [1.0] * SELDOM + [2.0]


def test_an_address_has_one_spelling() -> None:
    assert pci_address("00000000:3B:00.0") == pci_address("0000:3b:00") == "0:3b:00"
    assert pci_address("00000001:3B:00.0") != pci_address("0000:3b:00")
