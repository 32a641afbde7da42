"""The real NVML, behind the sensor of the agent. Skipped where there is no device."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from agent.deciding.device_signs import SignWatch
from agent.sensors.nvml import UNKNOWN_WITHOUT, NvmlSensor, nvml_sensor

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
    pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"),
]


@pytest.fixture
def sensor() -> NvmlSensor:
    found = nvml_sensor()
    assert found is not None, "torch sees a device, and NVML does not"
    return found


def test_each_device_tells_what_it_can(sensor: NvmlSensor) -> None:
    """Which signs there are depends on the device: what is absent has to be named."""
    readings = sensor.read()
    assert len(readings) == sensor.count >= torch.cuda.device_count()
    for each in readings:
        assert each.healthy, each.reason
        assert each.figures["total_bytes"] > each.figures["used_bytes"] > 0
        assert 0 < each.figures["temperature_celsius"] < 120
        assert all(value >= 0 for value in each.figures.values())
        for name, words in UNKNOWN_WITHOUT.items():
            assert name in each.figures or words in each.unknown
        if "power_limit_watts" in each.figures:
            assert 10 < each.figures["power_limit_watts"] < 3000


def test_a_device_that_works_shows_no_fault(sensor: NvmlSensor) -> None:
    """One that is remapping rows, or was just slowed down, is one to look at."""
    watch = SignWatch()
    for at in range(3):
        for each in sensor.read():
            watch.take(float(at), each.device, each.figures, each.unknown)
    assert watch.signs(2.0) == ()
