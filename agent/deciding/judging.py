"""Detect silent processes and bad devices. No clock, no I/O: events in, effects out.

A process that has not beaten for its timeout counts as dead. A device is bad when its sensor has called it
bad, or could not read it, for the whole device timeout, and well again after as long: one odd reading changes
nothing. When two steps are further apart than the watch allows, the agent itself was stopped and could hear
nobody; then every process and device gets that time back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BeatReceived:
    """A process beat. Its first beat puts it under watch."""

    member: str


@dataclass(frozen=True, slots=True)
class Unwatched:
    """A process is gone, or need not beat any more."""

    member: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sensor reads of a device now."""

    device: str
    healthy: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Silent:
    """This process has not beaten for `age_s`, which is past its timeout. It is no longer watched."""

    member: str
    age_s: float


@dataclass(frozen=True, slots=True)
class DeviceChanged:
    """A device became bad, or well again."""

    device: str
    healthy: bool
    reason: str


Event = BeatReceived | Unwatched | Reading | Tick
Effect = Silent | DeviceChanged


@dataclass(slots=True)
class _Device:
    read_at: float
    differs_since: float  # since when readings differ from `healthy`; infinity while they agree
    healthy: bool = True  # as last reported
    reason: str = ""


class NodeWatch:
    """Watches the processes and devices of one node. Times are in seconds, on the clock of `now`."""

    def __init__(self, process_timeout_s: float, device_timeout_s: float) -> None:
        self._process_s, self._device_s = process_timeout_s, device_timeout_s
        self._beat_at: dict[str, float] = {}
        self._devices: dict[str, _Device] = {}
        self._now = -math.inf
        self.stalls = 0  # how often the agent itself was found to have been stopped
        self._handlers: dict[type[Any], Callable[[float, Any], None]] = {
            BeatReceived: self._on_beat,
            Unwatched: self._on_unwatched,
            Reading: self._on_reading,
            Tick: lambda _now, _event: None,
        }

    @property
    def look_every_s(self) -> float:
        """The longest pause between two steps that does not mean that the agent was stopped."""
        return self._process_s / 4

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take one event at time `now` and return its effects. `now` must not go back."""
        assert now >= self._now, f"the clock went back from {self._now} to {now}"
        self._forgive(now)
        self._handlers[type(event)](now, event)
        return [*self._silent(now), *self._changed(now)]

    def next_deadline(self) -> float:
        """The latest time at which the next Tick must come; infinity when nothing is watched."""
        if not self._beat_at and not self._devices:
            return math.inf
        due = [at + self._process_s for at in self._beat_at.values()]
        due += [self._due(device) for device in self._devices.values()]
        return min(*due, self._now + self.look_every_s) if due else math.inf

    @property
    def ailing(self) -> list[DeviceChanged]:
        """The devices that are bad now, to report to a new leader."""
        bad = {name: device for name, device in self._devices.items() if not device.healthy}
        return [DeviceChanged(name, False, device.reason or "no reading") for name, device in bad.items()]

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for member, at in self._beat_at.items():
            assert at <= self._now < at + self._process_s, f"{member} is overdue and was not reported"
        for name, device in self._devices.items():
            assert self._due(device) > self._now, f"{name} is overdue and was not reported"

    def _forgive(self, now: float) -> None:
        gap = now - self._now
        self._now = now
        if not self._process_s / 2 < gap < math.inf:
            return
        self.stalls += 1
        for member in self._beat_at:
            self._beat_at[member] = min(now, self._beat_at[member] + gap)
        for device in self._devices.values():
            device.read_at = min(now, device.read_at + gap)
            device.differs_since += gap

    def _on_beat(self, now: float, event: BeatReceived) -> None:
        self._beat_at[event.member] = now

    def _on_unwatched(self, _now: float, event: Unwatched) -> None:
        self._beat_at.pop(event.member, None)

    def _on_reading(self, now: float, event: Reading) -> None:
        device = self._devices.setdefault(event.device, _Device(now, math.inf))
        device.read_at, device.reason = now, event.reason
        if event.healthy == device.healthy:
            device.differs_since = math.inf
        else:
            device.differs_since = min(device.differs_since, now)

    def _silent(self, now: float) -> list[Effect]:
        late = [member for member, at in self._beat_at.items() if now >= at + self._process_s]
        return [Silent(member, now - self._beat_at.pop(member)) for member in late]

    def _changed(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for name, device in self._devices.items():
            if now < self._due(device):
                continue
            unread = device.healthy and now >= device.read_at + self._device_s
            device.healthy, device.differs_since = not device.healthy, math.inf
            reason = f"no reading for {self._device_s:g} s" if unread else device.reason
            effects.append(DeviceChanged(name, device.healthy, reason))
        return effects

    def _due(self, device: _Device) -> float:
        if not device.healthy:
            return device.differs_since + self._device_s
        return min(device.differs_since, device.read_at) + self._device_s
