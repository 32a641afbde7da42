"""The leader's loop knows what it has not heard: events that wait, and time in which it was away."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records import events
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.loop.stepping import AWAY_S, Loop, away_s
from controlplane.daemon.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event


class Hearing:
    """A core that keeps what it is told, and when."""

    settings = CoreSettings()

    def __init__(self) -> None:
        self.heard: list[tuple[float, Event]] = []

    def step(self, now: float, event: Event) -> list[Effect]:
        self.heard.append((now, event))
        return []

    def next_deadline(self) -> float:
        return math.inf


async def test_what_waits_counts_as_heard_when_it_came() -> None:
    core = Hearing()
    loop = Loop(core, 7, lambda effect: None, Journal(), Metrics("0"))
    before = time.monotonic()
    loop.post(events.Stored(1))
    after = time.monotonic()
    time.sleep(0.2)  # noqa: ASYNC251 - something else keeps the event loop
    running = asyncio.create_task(loop.run())
    await loop.ask(events.Stored(2))
    running.cancel()
    await asyncio.wait([running])
    (first, _), (second, _) = core.heard
    assert before <= first <= after and second >= after + 0.2


async def test_a_loop_that_was_away_tells_the_core_before_anything_else() -> None:
    core = Hearing()
    loop = Loop(core, 7, lambda effect: None, Journal(), Metrics("0"))
    running = asyncio.create_task(loop.run())
    await loop.ask(events.Stored(1))
    loop.post(events.Stored(2))
    time.sleep(AWAY_S + 0.1)  # noqa: ASYNC251 - something else keeps the event loop
    await loop.ask(events.Stored(3))
    running.cancel()
    await asyncio.wait([running])
    kinds = [event for _, event in core.heard if not isinstance(event, events.LeaderDeaf)]
    assert kinds == [events.Stored(1), events.Stored(2), events.Stored(3)]
    deaf = core.heard[1][1]
    assert isinstance(deaf, events.LeaderDeaf) and AWAY_S < deaf.spent_s and not deaf.newcomers


@pytest.mark.parametrize(
    ("turned_at", "now", "away"),
    [(10.0, 10.0, 0.0), (10.0, 10.5, 0.0), (10.0, 11.0, 0.0), (10.0, 14.0, 4.0), (math.inf, 14.0, 0.0)],
)
def test_for_how_long_a_loop_was_away(turned_at: float, now: float, away: float) -> None:
    assert away_s(turned_at, now) == away
