"""The decision core: events in, effects out. No clock, no chance, no I/O."""

from __future__ import annotations

import math

from controlplane.core.effects import Effect
from controlplane.core.events import Elected, Event
from controlplane.core.timing import CoreSettings


class Cluster:
    """All that one leader knows and decides. One writer; dropped when the leader is fenced."""

    def __init__(self, settings: CoreSettings = CoreSettings()) -> None:  # noqa: B008 - frozen
        self.settings = settings
        self.term = 0  # fencing token; 0 until elected
        self.counts: dict[str, int] = {}  # what was dropped or refused, by kind

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take one event at time `now` (s, never going back) and say what is to be done about it."""
        if isinstance(event, Elected):
            self.term = event.term
        return []

    def next_deadline(self) -> float:
        """When (s, the clock of `now`) a Tick is due at the latest; infinity when none is."""
        return math.inf

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
