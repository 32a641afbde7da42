"""Let agents in one after the other when many come at once, so that the leader's event loop goes on turning.

With every new leader all agents connect in the same second. A hello costs a leader some milliseconds, and a
hello that is read is work that nothing can put off any more. So only a few are under way at a time (`window`,
by how late the event loop is). Other agents wait in line; those that would wait longer than an agent does are
told when to come again, each at a time of its own. Whoever waits is not silent: `unheard_s` says for how long
somebody has waited, and the core judges no newcomer for that time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LAG_AIM_S = 0.25
"""While the event loop is later than this, fewer hellos are let in."""
WINDOW_MIN, WINDOW_MAX = 4, 64
"""The fewest and the most hellos that are under way at a time."""
WAIT_MAX_S = 2.0
"""Nobody waits in line for longer than about this: an agent waits 5 s for an answer."""
AGAIN_MAX_S = 30.0
"""No agent is told to come again later than this: the leader may have changed by then."""
PER_S = 200.0
"""So many hellos per second are let in, as long as it was not seen how many are."""
PER_S_LEAST = 5.0
KEPT = 0.9
"""The share that the pace seen so far has in what counts as the pace, by look."""
BACK_S = 3.0
"""Who was told to come again may be late by so much and still counts as waiting."""
CAME_MANY = 3
LAG_LEAST_S = 0.01
"""See `crowded`."""
BEHIND_S = 1.0
"""Who may be behind others is taken to be there for so long after these."""
TOLD_EVERY_S = 1.0
HELD_MAX_S = 600.0
"""For so long in a row, at most, those who wait keep newcomers from being judged. A line that never ends is
another fault, and must not hide nodes that are gone."""


def window(before: int, lag_s: float) -> int:
    """How many hellos may be under way, by how many might be at the last look and how late the loop was."""
    return max(WINDOW_MIN, before // 2) if lag_s > LAG_AIM_S else min(WINDOW_MAX, before + 1)


def crowded(came: int, lag_s: float) -> bool:
    """Whether more agents are probably behind those that came since the last look: many came, or some did
    while turns of the event loop are long. grpc shows them one by turn."""
    return came >= CAME_MANY or (came > 0 and lag_s >= LAG_LEAST_S)


def booked(now: float, booked_until: float, per_s: float) -> float:
    """When (s) an agent is to come again: behind the line, and behind those who were told so before it, at
    the pace of `per_s`. Once that is too far away the times are given out anew, from the first one on."""
    first, next_at = now + WAIT_MAX_S, max(booked_until, now + WAIT_MAX_S) + 1 / per_s
    return next_at if next_at <= now + AGAIN_MAX_S else first + 1 / per_s


class Turn:
    """A place among those whose hellos are under way. To be given back once, by `over`."""

    def __init__(self, line: GreetingLine) -> None:
        self._line: GreetingLine | None = line

    def over(self) -> None:
        """The hello is judged, or its stream is gone: the next one may come. Does nothing the second time."""
        line, self._line = self._line, None
        if line is not None:
            line.left()


class GreetingLine:
    """Those who wait to be greeted by one coordinator. `clock`: s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.window = WINDOW_MAX // 4
        self._inside = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._per_s, self._served, self._looked_at = PER_S, 0, clock()
        self._booked_until = 0.0  # the pace until then is promised to those who were told to come again
        self._back_by = 0.0  # by then all of these have come
        self._came, self._behind_until = 0, 0.0
        self._busy_since = 0.0  # 0: nobody waits
        self._told_at = 0.0

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return len(self._line)

    def later_s(self, coming: int, *, full: bool = False) -> float:
        """When an agent that has just come has to come again, in s; 0: it may wait here.

        `coming`: those who are about to stand in line. `full`: it may not wait here in any case."""
        self._came += 1
        if not full and (len(self._line) + coming) / self._per_s <= WAIT_MAX_S:
            return 0.0
        now = self._clock()
        self._booked_until = booked(now, self._booked_until, self._per_s)
        self._back_by = max(self._back_by, self._booked_until + BACK_S)
        return self._booked_until - now

    async def enter(self) -> Turn:
        """Wait for the turn of a hello that has been received."""
        if self._inside >= self.window or self._line:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # its turn came in the moment in which it left
                    self._inside -= 1
                    self._call()
                else:
                    self._line.remove(turn)
                raise
        else:
            self._inside += 1
        return Turn(self)

    def left(self) -> None:
        """One hello is no longer under way."""
        self._inside -= 1
        self._served += 1
        self._call()

    def _call(self) -> None:
        """Call those whose turn it is."""
        while self._line and self._inside < self.window:
            turn = self._line.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)

    def look(self, lag_s: float) -> None:
        """Take how late the event loop was since the last look."""
        now = self._clock()
        if crowded(self._came, lag_s):
            self._behind_until = now + BEHIND_S
        self._came = 0
        spent_s, self._looked_at = now - self._looked_at, now
        if self._line and spent_s > 0:  # without a line the pace is that of the agents, not ours
            self._per_s = max(PER_S_LEAST, KEPT * self._per_s + (1 - KEPT) * self._served / spent_s)
        self._served = 0
        self.window = window(self.window, lag_s)
        self._call()

    @property
    def busy(self) -> bool:
        """Whether somebody waits here or outside, or was told to come again and may not be back yet."""
        return bool(self._line) or self._clock() < max(self._back_by, self._behind_until)

    def unheard_s(self) -> float:
        """For how long (s) somebody has waited since this was last told; 0: it need not be told now."""
        now = self._clock()
        if not self.busy:
            self._busy_since = 0.0
            return 0.0
        if not self._busy_since:
            self._busy_since = self._told_at = now
        if now - self._told_at < TOLD_EVERY_S or now - self._busy_since > HELD_MAX_S:
            return 0.0
        spent_s, self._told_at = now - self._told_at, now
        return spent_s
