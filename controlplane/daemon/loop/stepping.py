"""Run the loop around the pure core: one task takes events in order, steps the core, carries out its effects.

No other task steps the core, so it needs no locks. The loop asks before each batch of events whether this
process still leads: it may have been stopped (SIGSTOP, a suspended machine) and wake up when its term is
over. Whatever the core raises ends the term; those who wait for an answer get TermOver."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from controlplane.core.records import events
from controlplane.core.records.effects import Note, Release

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.core.records.timing import CoreSettings
    from controlplane.daemon.journal.journal import Journal
    from controlplane.daemon.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

BATCH_EVENTS = 64
"""Events that are taken before other tasks of the event loop (streams, etcd) get their turn."""

BACKLOG_MAX = 20_000
"""While more events than this wait, nothing is read from streams."""

SLICES: tuple[tuple[int, float], ...] = ((64, 0.002), (1_024, 0.01))
SLICE_MAX_S = 0.05
"""While at most so many events wait, they are taken for so long (s) before other tasks get their turn; and
with more. grpc accepts one new stream by turn: short turns let many agents connect at once."""

REST_MAX_S = 0.5
"""A loop without work turns this often, so that it knows when it was kept from turning."""

AWAY_S = 1.0
"""A loop that has not turned for longer than this was away (busy elsewhere, stopped, suspended): what agents
sent meanwhile is not read yet, so the core must not judge their silence."""

TICK_MIN_S = 0.001
"""Shortest wait for a deadline of the core, in s."""
_STATUS_KEY = attrgetter("member", "phase", "generation", "pid")
"""The fields of a member's status whose change makes a beat worth a line in the journal."""

NOTE_INTERVAL_S = 10.0
"""The same note, or release, is journalled at most once in this time."""

NOTES_KEPT = 4096


def away_s(turned_at: float, now: float) -> float:
    """For how long (s) a loop that turned last at `turned_at` was away; 0: it was not."""
    gap_s = now - turned_at
    return gap_s if gap_s > AWAY_S else 0.0


def slice_s(waiting: int) -> float:
    """For how long (s) events are taken while so many wait."""
    return next((spent for most, spent in SLICES if waiting <= most), SLICE_MAX_S)


class TermOver(Exception):
    """Leadership was lost: the request was not carried out."""

    def __init__(self) -> None:
        super().__init__("this coordinator no longer leads; ask the leader")


class Core(Protocol):
    """What the loop needs of the core's Cluster."""

    settings: CoreSettings

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take an event and decide. `now` is s on a monotonic clock."""
        ...

    def next_deadline(self) -> float:
        """Return when the next Tick is due, s on the clock of `step`; infinity: none is."""
        ...


_Waiting = tuple["Event", "asyncio.Future[list[Effect]] | None", float]
"""An event, who waits for its effects, and when (s) it was heard."""


class Loop:
    """The only owner of a Cluster. `run` ends when it is cancelled, with TermOver, or with what the core
    raises.

    `held` returns whether this process may still lead. `on_event` is called with every event that the core
    has taken, before its effects are carried out."""

    def __init__(
        self, core: Core, term: int, perform: Callable[[Effect], None], journal: Journal, metrics: Metrics
    ) -> None:
        self._core, self._term, self._perform = core, term, perform
        self._journal, self._metrics = journal, metrics
        self._recording = journal.record(term, core.settings)
        self.held: Callable[[], bool] = lambda: True
        self.on_event: Callable[[Event], None] = lambda event: None
        self._over = False
        self._waiting: deque[_Waiting] = deque()
        self._turned_at = math.inf  # when `run` last turned, s on the clock of `step`
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._notes: dict[Note | tuple[str, int, int], float] = {}  # when each was journalled last
        self._beats: dict[str, tuple[Any, ...]] = {}  # by node: its last beat, without the steps

    def post(self, event: Event) -> None:
        """Have the core take this event, after those posted before."""
        self._waiting.append((event, None, time.monotonic()))
        self._wake.set()

    async def ask(self, event: Event) -> list[Effect]:
        """Post an event, and return the effects that the core decides on. Raises TermOver."""
        if self._over:
            raise TermOver
        answer: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, answer, time.monotonic()))
        self._wake.set()
        return await answer

    @property
    def waiting(self) -> int:
        """How many events the core has not taken yet."""
        return len(self._waiting)

    async def room(self) -> None:
        """Wait while more than BACKLOG_MAX events wait. So each stream adds at most one event beyond that."""
        while len(self._waiting) > BACKLOG_MAX:
            await self._drained.wait()

    async def run(self) -> None:
        """Step the core again and again."""
        try:
            while True:
                await self._rest()
                if not self.held():
                    raise TermOver
                self._notice_absence()
                self._slice()
                if self._core.next_deadline() <= (now := self._heard_until()):
                    self._take(events.Tick(), None, now)
                if len(self._waiting) <= BACKLOG_MAX:
                    self._drained.set()
                    self._drained.clear()
                await asyncio.sleep(0)
        finally:
            self._over = True
            self._recording.close()
            for _, answer, _ in self._waiting:
                if answer is not None and not answer.done():
                    answer.set_exception(TermOver())

    def _notice_absence(self) -> None:
        """Tell the core when this loop was away, before anything else."""
        now = time.monotonic()
        if away := away_s(self._turned_at, now):
            reason = f"this leader was busy or stopped for {away:.1f} s"
            log.warning("%s: no node's silence of that time counts", reason)
            self._take(events.LeaderDeaf(away, reason), None, now)
        self._turned_at = now

    def _slice(self) -> None:
        """Take events: BATCH_EVENTS of them, or as many as the time lets."""
        ends_at = time.monotonic() + slice_s(len(self._waiting))
        for _ in range(min(len(self._waiting), BATCH_EVENTS)):
            self._take(*self._waiting[0])
            self._waiting.popleft()  # only now: if the core raises, `finally` answers its `ask`
            if time.monotonic() > ends_at:
                return

    def _heard_until(self) -> float:
        """Until when (s) the core has taken all that was heard. Its deadlines are judged by this: an agent
        whose beat still waits here is not silent."""
        return self._waiting[0][2] if self._waiting else time.monotonic()

    async def _rest(self) -> None:
        """Wait for an event, or for the core's next deadline, REST_MAX_S at most."""
        if self._waiting:
            return
        self._wake.clear()
        delay = min(REST_MAX_S, max(TICK_MIN_S, self._core.next_deadline() - time.monotonic()))
        timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
        await self._wake.wait()
        timer.cancel()

    def _take(self, event: Event, answer: asyncio.Future[list[Effect]] | None, now: float) -> None:
        """Step the core with an event that was heard at `now`."""
        begun = time.perf_counter()
        try:
            effects = self._core.step(now, event)
        except Exception as error:
            self._recording.write(now, event, failed=repr(error))
            self._journal.write(self._term, "event", event)
            self._journal.write_body(self._term, "daemon", "CoreFailed", {"reason": repr(error)})
            raise
        self._metrics.core_step_seconds.observe(time.perf_counter() - begun)
        self._recording.write(now, event, effects)
        self.on_event(event)
        for effect in effects:
            self._perform(effect)
        self._record(event, effects)
        if answer is not None and not answer.done():
            answer.set_result(effects)

    def _record(self, event: Event, effects: list[Effect]) -> None:
        self._metrics.events_total.add(type(event).__name__)
        if isinstance(event, events.NodeBeat | events.StepBeat):
            self._metrics.heartbeats_total.add()
        news = [effect for effect in effects if not self._is_repeated(effect)]
        if self._is_steady(event) and not news:
            self._journal.skip()
            return
        self._journal.write(self._term, "event", event)
        for effect in news:
            self._journal.write(self._term, "effect", effect)

    def _is_repeated(self, effect: Effect) -> bool:
        """Return whether this effect was written in the last seconds: a note, which every beat may repeat, or
        a release, which goes to each node."""
        if isinstance(effect, Release):
            key: Note | tuple[str, int, int] = (effect.job, effect.step, effect.void_step)
        elif isinstance(effect, Note):
            key = effect
        else:
            return False
        now = time.monotonic()
        if len(self._notes) > NOTES_KEPT:
            self._notes.clear()
        repeated = now - self._notes.get(key, -math.inf) < NOTE_INTERVAL_S
        if not repeated:
            self._notes[key] = now
        return repeated

    def _is_steady(self, event: Event) -> bool:
        """Return whether an event is routine: a tick, one rank's snapshot of many, or a beat that differs
        from the node's last one in steps only."""
        if isinstance(event, events.StepBeat | events.Tick | events.SnapshotReady | events.SnapshotVouched):
            return True
        if not isinstance(event, events.NodeBeat):
            return False
        seen = (event.incarnation, *map(_STATUS_KEY, event.members))
        steady = self._beats.get(event.node) == seen
        self._beats[event.node] = seen
        return steady
