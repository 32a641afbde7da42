"""Define what a sensor reads. Another kind of device is another class with `read`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What one device shows now. `figures`: numbers by name, with the unit in the name.

    `unknown`: what bears on its health and cannot be read here, in words."""

    device: str
    healthy: bool
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    judged: bool = True  # False: figures alone; that they cease to come says nothing


class Sensor(Protocol):
    """Reads some devices, in a thread: `read` may block and may raise OSError.

    A judged device without a reading for the device timeout counts as bad."""

    def read(self) -> list[DeviceReading]:
        """Return one reading per device."""
