"""Make few signs of what sensors read of devices. No clock, no I/O: the time is told with each reading.

A sign is a code with a number: seconds of the last minute in which clocks were held back, errors within the
last hour, an Xid of the last day, or a fault that stands. Numbers are rounded down in steps, so that a sign
changes seldom. What a sensor cannot have read (NaN, below zero, beyond all counters) is left out, and so is
what it read too long ago. A counter that goes back has begun anew: what it shows is no growth."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.node_checks import SIGN_TEXT_MAX, SIGNS_MAX, DeviceSign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WINDOW_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
GAP_MAX_S = 5.0
"""What a reading shows is taken to have lasted since the one before, unless that is longer ago."""
STALE_S = 30.0
"""A fault that stands is left out when nobody has read it for so long."""
HELD_STEP_S = 10.0
_COUNT_MAX = float(1 << 53)
_GROWTH_MAX = 1e9
"""More errors between two readings are no growth: no sensor counts so fast."""
_BUCKET_S = 60.0
_CELSIUS = (30.0, 150.0)
"""Thresholds beyond are none: some devices report 0."""

HELD = {"held_by_heat": "heat", "held_by_power_brake": "power_brake", "held_by_hardware": "hardware_slowdown"}
"""Figures that are 1 while clocks are held back, and the codes of their seconds. Not the power cap of the
software: that is what full load meets."""
GROWING = {
    "corrected_errors": "corrected_errors",
    "pcie_replays": "pcie_replays",
    "nvlink_replays": "nvlink_replays",
    "nvlink_recoveries": "nvlink_recoveries",
}
"""Counters, and the codes of their growth within the last hour."""
STANDING = {"remap_pending": "remap_pending", "remap_failed": "remap_failed"}
"""Figures that are not 0 while a fault stands."""
NETWORK, ERRORS, MEMORY, XID = "network", "_errors", "memory", "xid_"


@dataclass(slots=True)
class _Growth:
    """A counter: what it showed last, and how far it grew in each minute of the last hour."""

    last: float
    grown: deque[tuple[float, float]] = field(default_factory=deque)  # when a minute began, and its growth

    def take(self, now: float, value: float) -> None:
        grown, self.last = value - self.last, value
        if not 0 < grown <= _GROWTH_MAX:
            return
        if self.grown and now - self.grown[-1][0] < _BUCKET_S:
            began, before = self.grown.pop()
            self.grown.append((began, before + grown))
        else:
            self.grown.append((now, grown))

    def lately(self, now: float) -> float:
        while self.grown and now - self.grown[0][0] >= HOUR_S:
            self.grown.popleft()
        return sum(grown for _, grown in self.grown)


@dataclass(slots=True)
class _Device:
    read_at: float
    held: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)  # by code: when, and seconds
    counters: dict[str, _Growth] = field(default_factory=dict)  # by figure
    standing: dict[str, float] = field(default_factory=dict)  # by code
    xids: dict[int, tuple[float, float]] = field(default_factory=dict)  # by number: how many, and when
    unknown: tuple[str, ...] = ()


class SignWatch:
    """The signs of one node's devices. Times are in seconds, on a clock that does not go back."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def take(self, now: float, name: str, figures: Mapping[str, float], unknown: Sequence[str] = ()) -> None:
        """Take what a sensor reads of a device now."""
        device = self._devices.setdefault(name, _Device(now))
        known = {each: value for each, value in figures.items() if _possible(value)}
        lasted, device.read_at, device.unknown = now - device.read_at, now, tuple(unknown)
        self._hold(device, now, lasted if lasted <= GAP_MAX_S else 0.0, known)
        device.standing = {code: 1.0 for figure, code in STANDING.items() if known.get(figure)}
        if name == MEMORY and (uncorrected := known.get("uncorrected_errors")):
            device.standing["uncorrected_errors"] = _steps(uncorrected)
        for figure, value in known.items():
            if figure in GROWING or (name == NETWORK and figure.endswith(ERRORS)):
                device.counters.setdefault(figure, _Growth(value)).take(now, value)
            elif figure.startswith(XID) and figure.removeprefix(XID).isdecimal():
                self._count_xid(device, now, int(figure.removeprefix(XID)), value)

    def _hold(self, device: _Device, now: float, lasted: float, known: Mapping[str, float]) -> None:
        """Note for how long clocks were held back. A device at its own threshold is held back by heat,
        whether it says so or not."""
        held = {code for figure, code in HELD.items() if known.get(figure)}
        threshold = known.get("slowdown_celsius", math.inf)
        if _CELSIUS[0] <= threshold <= _CELSIUS[1] and known.get("temperature_celsius", 0.0) >= threshold:
            held.add("heat")
        for code in held:
            device.held.setdefault(code, deque()).append((now, lasted))
        for spans in device.held.values():
            while spans and now - spans[0][0] >= WINDOW_S:
                spans.popleft()

    def _count_xid(self, device: _Device, now: float, number: int, count: float) -> None:
        before = device.xids.get(number)
        if before is None or count > before[0]:
            device.xids[number] = count, now

    def signs(self, now: float) -> tuple[DeviceSign, ...]:
        """The signs of all devices, in one order. There are no more than `SIGNS_MAX`; `unknown` says how many
        were left out."""
        return tuple(DeviceSign(*each) for each in self._all(now)[:SIGNS_MAX])

    def unknown(self, now: float) -> tuple[str, ...]:
        """What bears on the health of these devices and cannot be read, with the devices."""
        of: dict[str, list[str]] = {}
        for name, each in sorted(self._devices.items()):
            for words in each.unknown if now - each.read_at < STALE_S else ():
                of.setdefault(words, []).append(name)
        more = len(self._all(now)) - SIGNS_MAX
        left_out = (f"{more} more signs",) if more > 0 else ()
        return (*(f"{words} of {_listed(names)}"[:SIGN_TEXT_MAX] for words, names in of.items()), *left_out)

    def _all(self, now: float) -> list[tuple[str, str, float]]:
        found = [row for name, each in self._devices.items() for row in _of(now, name, each)]
        return sorted(row for row in found if row[2] > 0)


def _of(now: float, name: str, device: _Device) -> Iterator[tuple[str, str, float]]:
    """Each sign of a device, with the device's name."""
    for code, spans in device.held.items():
        held_s = sum(lasted for at, lasted in spans if now - at < WINDOW_S)
        yield name, code, math.floor(held_s / HELD_STEP_S) * HELD_STEP_S
    for figure, growth in device.counters.items():
        if name == NETWORK:
            yield f"{name} {figure.removesuffix(ERRORS)}", "link_errors", _steps(growth.lately(now))
        else:
            yield name, GROWING[figure], _steps(growth.lately(now))
    if now - device.read_at < STALE_S:
        for code, value in device.standing.items():
            yield name, code, value
    for number, (_, at) in device.xids.items():
        yield name, "xid", float(number) if now - at < DAY_S else 0.0


def _possible(value: float) -> bool:
    return math.isfinite(value) and 0.0 <= value < _COUNT_MAX


def _steps(value: float) -> float:
    """A count, rounded down to 1, 2 or 5 times a power of ten."""
    if value < 1:
        return 0.0
    tens = 10.0 ** (len(str(int(value))) - 1)
    return next(step * tens for step in (5.0, 2.0, 1.0) if value >= step * tens)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"
