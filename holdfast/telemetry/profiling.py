"""Profile the next complete steps of this rank when a person asks for it, and report what came of it.

`ask` runs in the agent client's thread, the other methods in the thread that trains, at the boundaries of
steps: between them lies one look at an attribute while nobody asks. The trace is written by a third thread.

A profile may cost time, never the training: whatever torch raises becomes the reason of the answer. It ends
without a trace when the generation ends, when its time is over, when the script begins to profile by itself
(`foreign_profilers`), and before the script forks, because a forked process would record for ever."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import raised
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken
from holdfast.telemetry import foreign_profilers
from holdfast.telemetry import profile_policy as policy
from holdfast.telemetry.step_trace import StepTrace, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.messages.agent import Profile

log = logging.getLogger("holdfast.sdk")


@dataclass(slots=True)
class _Running:
    """A profile that records."""

    trace: StepTrace
    entrance: foreign_profilers.Entrance
    thread: int
    first_step: int
    complete: int = 0
    unwanted: str = ""  # why it is to end at the next boundary


class StepProfiler:
    """The profiles of one rank, one at a time. `send` sends an answer to the agent."""

    def __init__(self, send: Callable[[Profiled | ProfileTaken], None]) -> None:
        self._send = send
        self._order: Profile | None = None  # from the request until its answer
        self._due_s = 0.0  # when it is given up
        self._running: _Running | None = None
        self._recorded = False  # its steps are over, and the trace is written
        self._stopped = threading.Event()
        _profilers.add(self)

    def ask(self, order: Profile) -> str:
        """Profile the next complete steps. Returns why not; ""."""
        busy = self._order
        waits = busy is not None and self._running is None and not self._recorded
        if busy is not None and not (waits and time.monotonic() > self._due_s):
            what = "writes the trace of" if self._recorded else "is being profiled for"
            return f"this rank {what} request {busy.request}: ask again when that is done"
        self._due_s = time.monotonic() + order.timeout_s
        self._recorded = False
        self._order = order
        return ""

    def begin_step(self, step: int, generation: int) -> None:
        """Begin a step: `step` steps of the job are complete."""
        order = self._order
        if order is None or self._recorded:
            return
        running = self._running
        if reason := self._obstacle(order, running, generation):
            self._end(reason)
        elif running is None:
            self._start(order, step)
        else:
            self._guarded(functools.partial(running.trace.begin_step, step))

    def end_step(self) -> None:
        """The step that was begun last is complete."""
        running, order = self._running, self._order
        if running is None or order is None:
            return
        running.complete += 1
        self._guarded(running.trace.end_step)
        if self._running is running and running.complete >= order.steps:
            self._finish(order, running)

    def leave(self, reason: str) -> None:
        """The loop over steps, or the generation, is over: so is a profile that waits or records."""
        if self._order is None or self._recorded:
            return
        running = self._running
        if running is not None and running.thread != threading.get_ident():
            running.unwanted = reason  # a generator that the garbage collector closed in another thread
            return
        done = f", with {running.complete} of {self._order.steps} steps recorded" if running else ""
        self._end(reason + done)

    def fork(self) -> None:
        """The script is about to fork this process."""
        running = self._running
        if running is not None and running.thread == threading.get_ident():
            self._end("the script forked a process (such as a DataLoader's worker) meanwhile: ask again")

    # ------------------------------------------------------------------ one profile

    def _obstacle(self, order: Profile, running: _Running | None, generation: int) -> str:
        if generation != order.generation:
            return f"generation {order.generation} has ended: ask again"
        if running is not None and running.unwanted:
            return running.unwanted
        if time.monotonic() > self._due_s:
            return f"{order.steps} steps were not complete within {order.timeout_s:g} s"
        return ""

    def _start(self, order: Profile, step: int) -> None:
        if reason := foreign_profilers.found():
            self._end(reason)
            return
        self._stopped.clear()
        entrance = foreign_profilers.Entrance(self._give_way)
        running = _Running(StepTrace(), entrance, threading.get_ident(), step)
        self._guarded(running.trace.start)
        if self._order is not order:
            return
        entrance.watch()
        self._running = running
        log.info("request %s: the next %d steps are profiled", order.request, order.steps)
        self._guarded(functools.partial(running.trace.begin_step, step))

    def _give_way(self) -> None:
        """The script begins to profile: end ours first."""
        running = self._running
        if running is None:
            return
        reason = "the script began to profile by itself meanwhile"
        if running.thread == threading.get_ident():
            self._end(reason)
        else:
            running.unwanted = reason
            self._stopped.wait(policy.GIVE_WAY_S)

    def _guarded(self, act: Callable[[], object]) -> None:
        """Call torch's profiler. What it raises ends the profile, not the script."""
        try:
            act()
        except Exception as error:
            self._end(_words(error))

    def _stop(self) -> str:
        """Stop recording. Returns why torch could not; ""."""
        running, self._running = self._running, None
        if running is None:
            return ""
        running.entrance.close()
        try:
            running.trace.stop()
        except Exception as error:
            return _words(error)
        finally:
            self._stopped.set()
        return ""

    def _end(self, reason: str) -> None:
        """End the profile without a trace."""
        order = self._order
        failed = self._stop()
        if order is not None:
            self._answer(order, _without(order, f"{reason}; {failed}" if failed else reason))

    def _finish(self, order: Profile, running: _Running) -> None:
        """All steps are complete: stop recording, and have the trace written."""
        self._recorded = True
        if failed := self._stop():
            self._answer(order, _without(order, failed))
            return
        self._send(ProfileTaken(order.request, recorded=True))
        write = functools.partial(self._write, order, running)
        threading.Thread(target=write, name="holdfast-profile").start()

    def _write(self, order: Profile, running: _Running) -> None:
        try:
            answer = _written(order, running)
        except Exception as error:
            answer = _without(order, _words(error))
        self._answer(order, answer)

    def _answer(self, order: Profile, answer: Profiled) -> None:
        log.info("request %s: %s", order.request, answer.reason or f"the trace is {answer.path}")
        self._order, self._recorded = None, False
        self._send(answer)


def _written(order: Profile, running: _Running) -> Profiled:
    """Write the trace and make the table."""
    size = running.trace.write(Path(order.path), order.bytes_max)
    rows, no_table = running.trace.operators()
    return Profiled(
        request=order.request,
        generation=order.generation,
        path=order.path,
        bytes=size,
        first_step=running.first_step,
        steps=running.complete,
        cpu_s=sum(row.cpu_s for row in rows),
        device_s=sum(row.device_s for row in rows),
        operators=rows[: policy.OPERATORS_MAX],
        no_table=no_table,
    )


def _without(order: Profile, reason: str) -> Profiled:
    return Profiled(order.request, order.generation, reason)


def _words(error: Exception) -> str:
    return (str(error) if isinstance(error, TraceError) else f"the profiler failed: {raised(error)}")[:500]


_profilers: weakref.WeakSet[StepProfiler] = weakref.WeakSet()


def _before_fork() -> None:
    for each in list(_profilers):
        each.fork()


os.register_at_fork(before=_before_fork)
