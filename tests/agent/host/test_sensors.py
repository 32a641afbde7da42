"""What sensors make of what a driver says. Its library is played: no machine of the tests has a device."""

from __future__ import annotations

import types
from typing import Any

from agent.host.sensors import DeviceReading, NvmlSensor


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # the library's own name
    pass


def driver(**answers: Any) -> Any:
    """NVML's functions with one device; an answer that is an exception is raised."""

    def asked(name: str) -> Any:
        def ask(*_: object) -> Any:
            if isinstance(answers.get(name), Exception):
                raise answers[name]
            return answers.get(name)

        return ask

    names = ("MemoryInfo", "Temperature", "UtilizationRates", "TotalEccErrors")
    return types.SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NVMLError_NotSupported,
        NVML_TEMPERATURE_GPU=0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        **{f"nvmlDeviceGet{name}": asked(name) for name in names},
    )


WELL: dict[str, Any] = {
    "MemoryInfo": types.SimpleNamespace(used=3, total=9),
    "Temperature": 40,
    "UtilizationRates": types.SimpleNamespace(gpu=50),
    "TotalEccErrors": 0,
}


def read(**changes: Any) -> DeviceReading:
    (reading,) = NvmlSensor(driver(**{**WELL, **changes})).read()
    return reading


def test_a_device_that_is_well_tells_its_figures() -> None:
    reading = read()
    assert (reading.device, reading.healthy) == ("gpu0", True)
    assert reading.figures == {
        "used_bytes": 3.0,
        "total_bytes": 9.0,
        "temperature_celsius": 40.0,
        "utilization_percent": 50.0,
        "uncorrected_errors": 0.0,
    }


def test_a_figure_that_a_kind_of_device_has_not_makes_none_of_them_bad() -> None:
    """As the utilization of one that is cut up (MIG), or the temperature of a virtual one."""
    reading = read(UtilizationRates=NVMLError_NotSupported(), TotalEccErrors=NVMLError_NotSupported())
    assert reading.healthy, reading.reason
    assert reading.figures.keys() == {
        "used_bytes",
        "total_bytes",
        "temperature_celsius",
        "uncorrected_errors",
    }


def test_an_error_of_the_driver_is_the_reason() -> None:
    reading = read(MemoryInfo=NVMLError("GPU is lost"))
    assert (reading.healthy, reading.reason) == (False, "NVML: GPU is lost")
    assert "2 uncorrected" in read(TotalEccErrors=2).reason
