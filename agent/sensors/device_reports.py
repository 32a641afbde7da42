"""Keep the newest readings of a node's devices, and tell the leader which signs they show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent.deciding.device_signs import SignWatch
from controlplane.core.records.node_checks import NodeSensed

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.sensors.readings import DeviceReading

FIRST_AFTER_S = 5.0
"""The leader is told for the first time when all sensors have had the time to read."""
LOOK_EVERY_S, TELL_EVERY_S = 1.0, 30.0
"""How often signs are looked at; and the least time between two messages about those of one node."""
NOT_KNOWN = -1.0


class DeviceReports:
    """The newest reading of each device, by its name. `send` takes what is to be told of their signs."""

    def __init__(self, node: str, incarnation: int, send: Callable[[NodeSensed], None]) -> None:
        self._node, self._incarnation, self._send = node, incarnation, send
        self.newest: dict[str, DeviceReading] = {}
        self._watch, self._told = SignWatch(), NodeSensed("", 0)
        self._due = math.inf

    def take(self, reading: DeviceReading, now: float) -> None:
        """Take a sensor's reading at `now` (s), and tell the leader when that changes its signs."""
        if not self.newest:
            self._due = now + FIRST_AFTER_S
        self.newest[reading.device] = reading
        self._watch.take(now, reading.device, reading.figures, reading.unknown)
        if now < self._due:
            return
        found = NodeSensed(self._node, self._incarnation, self._watch.signs(now), self._watch.unknown(now))
        self._due = now + LOOK_EVERY_S
        if found != self._told:
            self._told, self._due = found, now + TELL_EVERY_S
            self._send(found)

    def told(self) -> list[NodeSensed]:
        """What a new leader must hear first; []: there was no time to read yet."""
        return [self._told] if self._told.node else []

    def used(self, local_rank: int) -> float:
        """The share of the time in which the GPU of this local rank computes, or NOT_KNOWN."""
        reading = self.newest.get(f"gpu{local_rank}")
        percent = reading.figures.get("utilization_percent") if reading is not None else None
        return NOT_KNOWN if percent is None else min(1.0, max(0.0, percent / 100.0))
