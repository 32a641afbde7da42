"""Write entries to a logger in a thread of its own, so that a logger that is slow or down delays no step.

`put` only appends to a bounded queue. The thread opens the logger, writes the oldest entry and takes it off
the queue when that has succeeded. If the logger raises, the thread closes it, waits, opens it again and goes
on with the same entry: what a logger has taken in spite of an error, it finds when it is opened. When the
queue is full, the oldest entries are dropped; the process's output says so, and so does the log once the
logger answers again.

An entry of an older step and a newer generation replaces what was computed before: entries that wait and that
it replaces are removed, and the logger is opened again at its step."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FIRST_WAIT_S, WAIT_MAX_S = 0.25, 10.0
"""Times between two attempts on a logger that is down: the first one, doubled up to the longest."""
log = logging.getLogger("holdfast.sdk")


class Logger(Protocol):
    """What a script gives: one open log. Its methods run in one thread; if one raises, it is tried again."""

    def write(self, step: int, values: Mapping[str, float], /) -> None:
        """Write the numbers of one step. Steps ascend."""

    def note(self, step: int, text: str, /) -> None:
        """Write what happened before this step."""

    def close(self, *, finished: bool) -> None:
        """Close it. `finished`: the job is over; else this or another process opens the log again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is logged of one step: numbers or, if `note` is not empty, that text.

    `generation`: in which it was computed."""

    step: int
    generation: int
    values: Mapping[str, float]
    note: str = ""

    def replaces(self, older: Entry) -> bool:
        """Whether the job has gone back to this step or before since the other one was computed."""
        return older.step >= self.step and older.generation < self.generation


@dataclass(frozen=True, slots=True)
class Missing:
    """How many entries were dropped since the logger answered last, and of which steps."""

    first: int
    last: int
    entries: int

    def __str__(self) -> str:
        return f"{self.entries} entries of steps {self.first} to {self.last} are missing"

    def and_then(self, other: Missing | None) -> Missing:
        """Both."""
        if other is None:
            return self
        return Missing(min(self.first, other.first), max(self.last, other.last), self.entries + other.entries)


class LogWriter:
    """The queue and its thread, which starts with the first entry.

    - `open_logger`: called in the thread with the first step that will be written.
    - `capacity`: how many entries may wait."""

    def __init__(self, open_logger: Callable[[int], Logger], capacity: int) -> None:
        self._open_logger, self._capacity = open_logger, capacity
        self._changed = threading.Condition()  # guards all that both threads touch
        self._waiting: deque[Entry] = deque()
        self._thread: threading.Thread | None = None
        self._leaving = self._hurry = self._finished = False
        self._finish_at: int | None = None  # the step to open the logger at, to finish it
        self._missing: Missing | None = None  # what the log has not been told of
        self._error = ""  # of the newest attempt; "": it succeeded
        # The thread's own:
        self._logger: Logger | None = None
        self._taken: Entry | None = None  # the newest entry that the open logger has

    # ------------------------------------------------------------------ called by the training

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return len(self._waiting)

    def put(self, entries: Iterable[Entry]) -> None:
        """Have these entries written. It never waits for the logger."""
        with self._changed:
            self._leaving = False
            for entry in entries:
                while self._waiting and entry.replaces(self._waiting[-1]):
                    self._waiting.pop()
                self._waiting.append(entry)
                if len(self._waiting) > self._capacity:
                    self._drop(self._waiting.popleft())
            self._wake()

    def leave(self) -> None:
        """Another process writes from now on: write nothing more, and close the logger."""
        with self._changed:
            if self._thread is not None:
                self._waiting.clear()
                self._leaving = True
                self._changed.notify_all()

    def finish(self, step: int, timeout_s: float) -> bool:
        """Write what waits, and close the logger as finished. `step`: where to open it if it is not open.

        Returns whether that was done in time."""
        with self._changed:
            self._finish_at, self._finished, self._leaving, self._hurry = step, False, False, True
            self._wake()
            if not self._changed.wait_for(lambda: self._finished, timeout_s):
                values = (timeout_s, len(self._waiting), self._error or "it does not answer")
                log.warning("the logger was not finished in %g s, %d entries are not in it: %s", *values)
            return self._finished

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-logger", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _drop(self, entry: Entry) -> None:
        if self._missing is None:
            values = (self._capacity, entry.step, self._error or "it is too slow")
            log.warning("%d entries wait for the logger; dropped: the oldest, from step %d on: %s", *values)
        dropped = Missing(entry.step, entry.step, 1)
        self._missing = dropped if self._missing is None else self._missing.and_then(dropped)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                entry = self._waiting[0] if self._waiting and not self._leaving else None
                leaving, finish_at = self._leaving, self._finish_at
            try:
                self._work(entry, leaving, finish_at)
            except Exception as error:  # a logger may raise anything; it is told, and tried again
                self._failed(error, wait_s)
                wait_s = min(WAIT_MAX_S, 2 * wait_s)
                continue
            wait_s = FIRST_WAIT_S
            self._succeeded(entry, leaving)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._leaving or self._finish_at is not None

    def _work(self, entry: Entry | None, leaving: bool, finish_at: int | None) -> None:
        if leaving:
            self._close()
        elif entry is not None:
            self._write(entry)
        elif finish_at is not None:
            logger = self._opened(finish_at)
            self._tell_missing(logger, finish_at)
            logger.close(finished=True)
            self._logger = self._taken = None

    def _write(self, entry: Entry) -> None:
        if self._taken is not None and entry.replaces(self._taken):
            self._close()
        logger = self._opened(entry.step)
        self._tell_missing(logger, entry.step)
        if entry.note:
            logger.note(entry.step, entry.note)
        else:
            logger.write(entry.step, entry.values)
        self._taken = entry

    def _opened(self, step: int) -> Logger:
        self._logger = self._logger or self._open_logger(step)
        return self._logger

    def _close(self) -> None:
        logger, self._logger, self._taken = self._logger, None, None
        if logger is not None:
            logger.close(finished=False)

    def _tell_missing(self, logger: Logger, step: int) -> None:
        with self._changed:
            missing, self._missing, error = self._missing, None, self._error
        if missing is None:
            return
        try:
            logger.note(step, f"{missing}: the logger {'failed: ' + error if error else 'was too slow'}")
        except BaseException:
            with self._changed:
                self._missing = missing.and_then(self._missing)
            raise
        log.warning("the logger takes entries again; %s", missing)

    def _succeeded(self, entry: Entry | None, leaving: bool) -> None:
        with self._changed:
            if self._error:
                log.warning("the logger answers again")
            self._error = ""
            if leaving:
                self._leaving = False
            elif entry is None:
                self._finish_at, self._finished = None, True
            elif self._waiting and self._waiting[0] is entry:
                self._waiting.popleft()
            self._changed.notify_all()

    def _failed(self, error: Exception, wait_s: float) -> None:
        """Tell of a failure, and wait until the next attempt."""
        if not self._error:
            log.warning("the logger fails; entries wait, and it is tried again: %r", error)
        try:
            self._close()
        except Exception as another:  # of a logger that has failed already: nothing changes
            log.info("the logger cannot be closed either: %r", another)
        with self._changed:
            self._error = repr(error)[:300]
            until = time.monotonic() + wait_s
            self._changed.wait_for(lambda: self._hurry or time.monotonic() >= until, wait_s)
            self._hurry = False
