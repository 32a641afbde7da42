"""Which signs readings of devices make: nothing of what is usual, and little that changes often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from agent.deciding.device_signs import DAY_S, HOUR_S, STALE_S, SignWatch
from controlplane.core.records.node_checks import SIGNS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

FULL_LOAD = {
    "used_bytes": 8e10,
    "total_bytes": 8.5e10,
    "temperature_celsius": 88.0,
    "slowdown_celsius": 89.0,
    "shutdown_celsius": 92.0,
    "utilization_percent": 100.0,
    "power_watts": 700.0,
    "power_limit_watts": 700.0,
    "held_by_heat": 0.0,
    "held_by_power_brake": 0.0,
    "held_by_hardware": 0.0,
    "held_by_power_cap": 1.0,
    "uncorrected_errors": 0.0,
    "corrected_errors": 12.0,
    "remapped_corrected_rows": 1.0,
    "remapped_uncorrected_rows": 2.0,
    "remap_pending": 0.0,
    "remap_failed": 0.0,
    "pcie_replays": 31.0,
    "nvlink_replays": 4.0,
    "nvlink_recoveries": 2.0,
    "nvlink_crc_errors": 900.0,
}
"""A device that works: hot, below its threshold, at its power cap, with errors from before."""


def shown(watch: SignWatch, now: float) -> dict[tuple[str, str], float]:
    return {(each.device, each.code): each.value for each in watch.signs(now)}


def fed(readings: Iterable[tuple[float, dict[str, float]]], device: str = "gpu0") -> SignWatch:
    watch = SignWatch()
    for at, changed in readings:
        watch.take(at, device, {**FULL_LOAD, **changed})
    return watch


def test_a_device_under_full_load_shows_nothing() -> None:
    watch = fed((float(at), {}) for at in range(7200))
    assert watch.signs(7200.0) == ()


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"held_by_heat": 1.0}, "heat"),
        ({"temperature_celsius": 89.0}, "heat"),
        ({"held_by_power_brake": 1.0}, "power_brake"),
        ({"held_by_hardware": 1.0}, "hardware_slowdown"),
    ],
)
def test_seconds_of_the_last_minute_are_counted_in_steps(changed: dict[str, float], code: str) -> None:
    watch = fed((float(at), changed if at >= 26 else {}) for at in range(61))
    assert shown(watch, 60.0) == {("gpu0", code): 30.0}  # 35 s
    assert shown(watch, 92.0) == {("gpu0", code): 20.0}  # of them, 28 s are of the last minute
    assert shown(watch, 121.0) == {}


def test_nobody_was_seen_to_be_held_back_while_nobody_looked() -> None:
    watch = fed([(0.0, {"held_by_heat": 1.0}), (50.0, {"held_by_heat": 1.0}), (51.0, {"held_by_heat": 1.0})])
    assert shown(watch, 51.0) == {}


def test_a_device_without_a_threshold_is_not_hot() -> None:
    """Some report 0 where they have none."""
    for threshold in (0.0, 255.0):
        watch = fed((float(at), {"slowdown_celsius": threshold}) for at in range(60))
        assert shown(watch, 60.0) == {}


def test_growth_within_the_last_hour_is_counted() -> None:
    watch = fed([(0.0, {}), (60.0, {"corrected_errors": 15.0}), (120.0, {"corrected_errors": 36.0})])
    assert shown(watch, 120.0) == {
        ("gpu0", "corrected_errors"): 20.0
    }  # 24, rounded down to 1, 2 or 5 times 10
    assert shown(watch, 60.0 + HOUR_S) == {("gpu0", "corrected_errors"): 20.0}  # 21: the first 3 are gone
    assert shown(watch, 120.0 + HOUR_S) == {}


def test_a_counter_that_goes_back_begins_anew() -> None:
    """A driver that was loaded again counts from 0: that is no growth, and hides none before or after."""
    counts = (100.0, 130.0, 0.0, 25.0)
    watch = fed((10.0 * at, {"pcie_replays": each}) for at, each in enumerate(counts))
    assert shown(watch, 40.0) == {("gpu0", "pcie_replays"): 50.0}  # 30 and 25


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 2.0**60])
def test_what_no_sensor_can_have_read_is_left_out(odd: float) -> None:
    changed = dict.fromkeys(FULL_LOAD, odd) | {"xid_79": odd}
    watch = fed((float(at), changed if at % 2 else {}) for at in range(60))
    assert watch.signs(60.0) == ()


def test_a_jump_that_no_counter_makes_is_no_growth() -> None:
    watch = fed([(0.0, {}), (1.0, {"nvlink_replays": 1e12}), (2.0, {"nvlink_replays": 1e12 + 7})])
    assert shown(watch, 2.0) == {("gpu0", "nvlink_replays"): 5.0}


def test_a_fault_that_stands_is_shown_until_it_is_gone_or_nobody_reads_it() -> None:
    watch = fed([(0.0, {"remap_pending": 1.0, "remap_failed": 1.0})])
    assert shown(watch, 1.0) == {("gpu0", "remap_pending"): 1.0, ("gpu0", "remap_failed"): 1.0}
    assert shown(watch, STALE_S) == {}
    watch.take(STALE_S, "gpu0", FULL_LOAD)
    assert shown(watch, STALE_S) == {}


def test_an_xid_is_shown_for_a_day() -> None:
    watch = fed([(0.0, {}), (5.0, {"xid_79": 1.0, "xid_31": 2.0}), (3600.0, {"xid_79": 1.0, "xid_31": 3.0})])
    assert [each.value for each in watch.signs(3600.0)] == [31.0, 79.0]
    assert [each.value for each in watch.signs(5.0 + DAY_S)] == [31.0], "it came again an hour later"
    watch.take(3600.0, "gpu0", {"xid_": 1.0, "xid_-1": 1.0, "xid_nan": 1.0})
    assert len(watch.signs(3600.0)) == 2


def test_the_host_shows_errors_of_memory_and_of_each_interface() -> None:
    watch = SignWatch()
    watch.take(0.0, "memory", {"corrected_errors": 3.0, "uncorrected_errors": 1.0})
    watch.take(0.0, "network", {"eth0_errors": 1e6, "eth1_errors": 5.0})
    watch.take(9.0, "memory", {"corrected_errors": 9.0, "uncorrected_errors": 1.0})
    watch.take(9.0, "network", {"eth0_errors": 1e6, "eth1_errors": 255.0, "eth2_errors": 1e6})
    assert shown(watch, 9.0) == {
        ("memory", "corrected_errors"): 5.0,
        ("memory", "uncorrected_errors"): 1.0,
        ("network eth1", "link_errors"): 200.0,
    }


def test_what_cannot_be_read_is_said_with_its_devices() -> None:
    watch = SignWatch()
    for index in range(8):
        unknown = ("NVLink errors", "PCIe replays") if index == 3 else ("NVLink errors",)
        watch.take(0.0, f"gpu{index}", {}, unknown)
    assert watch.unknown(0.0) == ("NVLink errors of gpu0 and 7 more", "PCIe replays of gpu3")
    assert watch.unknown(STALE_S) == (), "an agent calls a device bad that nobody reads"


def test_signs_are_bounded_and_it_is_said_how_many_are_left_out() -> None:
    watch = SignWatch()
    for index in range(100):
        watch.take(0.0, f"gpu{index}", {"remap_pending": 1.0, "remap_failed": 1.0})
    assert len(watch.signs(0.0)) == SIGNS_MAX
    assert watch.unknown(0.0) == (f"{200 - SIGNS_MAX} more signs",)
