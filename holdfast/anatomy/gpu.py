"""Time the phases of a step on a GPU, without ever waiting for it.

The host only queues work, so its clock shows nothing of how long that takes. At each switch of phases an
event is recorded on the current stream: the time between two events is the phase's, idle time of the GPU
included (so a wait of the host counts only as far as the GPU had nothing left to do). Events are read in a
later step, once the GPU has passed the last of them. Events are used again; their number is bounded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from holdfast.anatomy import policy

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("holdfast.sdk")


@dataclass(frozen=True, slots=True)
class GpuStep:
    """A measured step, as the GPU spent it."""

    spent_ns: list[float]  # by phase
    covered: bool
    cpu_ns: int


@dataclass(slots=True)
class _Marks:
    """The events of one step: `phases[i]` ended at `events[i + 1]`."""

    events: list[Any]
    phases: list[int]
    covered: bool = False
    cpu_ns: int = 0


class GpuTimes:
    """The events of one rank. `failed`: they cannot be used here, and the steps are not covered.

    `make_event` makes an event with timing; `capturing` tells whether the stream captures a graph now."""

    def __init__(
        self,
        phases: int,
        make_event: Callable[..., Any] = torch.cuda.Event,
        capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing,
    ) -> None:
        self.failed = False
        self._make_event, self._capturing = make_event, capturing
        self._phases = phases
        self._free: list[Any] = []
        self._now: _Marks | None = None
        self._queue: list[_Marks] = []

    def begin(self) -> None:
        """Begin a measured step."""
        self.forget()
        if not self.failed:
            self._now = _Marks([], [])
            self._record(self._now)

    def mark(self, phase: int) -> None:
        """End a phase."""
        now = self._now
        if now is not None:
            now.phases.append(phase)
            self._record(now)

    def relabel(self, old: int, new: int) -> None:
        """Count one phase of this step as another."""
        if self._now is not None and old in self._now.phases:
            self._now.phases = [new if phase == old else phase for phase in self._now.phases]

    def end(self, *, covered: bool, cpu_ns: int) -> None:
        """End the measured step; its events are read later."""
        now, self._now = self._now, None
        if now is None:
            return
        now.covered, now.cpu_ns = covered, cpu_ns
        self._queue.append(now)
        if len(self._queue) > policy.STEPS_IN_FLIGHT_MAX:
            self._drop(self._queue.pop(0))

    def done(self) -> list[GpuStep]:
        """The steps that the GPU has finished since the last call."""
        found = []
        try:
            while self._queue and self._queue[0].events[-1].query():
                found.append(self._read(self._queue[0]))
                self._drop(self._queue.pop(0))
        except RuntimeError as error:
            self._fail(error)
        return found

    def forget(self) -> None:
        """Forget the present step: it was not completed."""
        self._drop(self._now)
        self._now = None

    def _record(self, marks: _Marks) -> None:
        """Record an event on the current stream. Drop a step that captures a graph, or has too many."""
        try:
            if len(marks.events) >= policy.EVENTS_MAX or self._capturing():
                self.forget()
                return
            event = self._free.pop() if self._free else self._make_event(enable_timing=True)
            event.record()
            marks.events.append(event)
        except RuntimeError as error:
            self._fail(error)

    def _read(self, marks: _Marks) -> GpuStep:
        spent = [0.0] * self._phases
        for index, phase in enumerate(marks.phases):
            spent[phase] += marks.events[index].elapsed_time(marks.events[index + 1]) * 1e6  # from ms
        return GpuStep(spent, marks.covered, marks.cpu_ns)

    def _drop(self, marks: _Marks | None) -> None:
        if marks is not None:
            self._free += marks.events

    def _fail(self, error: RuntimeError) -> None:
        """Several devices in one step, or a driver without timing: the host's times are left, not covered."""
        log.warning("the phases of a step cannot be timed on this GPU, and count as not covered: %s", error)
        self.failed, self._now = True, None
        self._queue.clear()
        self._free.clear()
