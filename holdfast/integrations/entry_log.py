"""Keep the newest entries of a log as tracked state, and have rank 0 write them (`log_writer`).

So a process that becomes rank 0 has those that its predecessor may not have written, and opens the logger at
the oldest of them. What the log has of them is for the logger to know."""

from __future__ import annotations

import json
import logging
from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from holdfast.holds import OF_FAILURES
from holdfast.integrations.log_writer import Entry, Logger, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.session import Session

Key = tuple[int, int, bool]
_BEHIND = "%d entries wait for the logger, and the state has the newest %d: the others die with rank 0"
log = logging.getLogger("holdfast.sdk")


class EntryLog:
    """The entries and their writer. `open_logger`, `keep`, `capacity`: as of StepLog."""

    def __init__(
        self, session: Session, open_logger: Callable[[int], Logger], keep: int, capacity: int
    ) -> None:
        self._session = session
        self._writer = LogWriter(open_logger, capacity)
        self._values: deque[Entry] = deque(maxlen=keep)  # the newest entries with numbers, and their lines
        self._lines: deque[str] = deque(maxlen=keep)
        self._notes: list[Entry] = []  # what is noted before one of them
        self._given: set[Key] = set()  # what this process has given to its writer
        self._behind = False

    def finish(self, timeout_s: float = 60.0) -> bool:
        """Write what is left and close the logger as finished. To be called on all ranks, after the last
        elastic function; ranks other than 0 return at once.

        Returns False, and says how much is missing, if the logger takes longer than `timeout_s`."""
        if self._session.rank != 0:
            return True
        self._give()
        done = self._writer.finish(self._values[0].step if self._values else self._next, timeout_s)
        self._given.clear()  # whoever opens the log anew is given all, and knows what it has
        return done

    def state_dict(self) -> dict[str, Any]:
        """The newest entries, as JSON lines, and apart from them in which generations they were computed."""
        began = [[first.step, first.generation, ""] for first in islice(self._values, 1)]
        began += [[note.step, note.generation, note.note] for note in self._notes]
        return {"lines": "\n".join(self._lines), OF_FAILURES: json.dumps(began)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the newest entries."""
        self._values.clear()
        self._lines.clear()
        self._notes.clear()
        for entry in _entries(state):
            self._add(entry)

    # ------------------------------------------------------------------ for the classes below

    @property
    def _next(self) -> int:
        """The step of the next entry."""
        return self._values[-1].step + 1 if self._values else 0

    def _add(self, entry: Entry) -> None:
        if entry.note:
            self._notes.append(entry)
            return
        self._values.append(entry)
        self._lines.append(json.dumps([entry.step, dict(entry.values)]))
        while self._notes and self._notes[0].step < self._values[0].step:
            self._notes.pop(0)

    def _add_values(self, step: int, values: Mapping[str, float], trained: int) -> None:
        """Add an entry; before the first one of a generation, that it has begun at the step `trained`."""
        generation, newest = (
            self._session.generation,
            chain(islice(reversed(self._values), 1), self._notes[-1:]),
        )
        if max((each.generation for each in newest), default=generation) != generation:
            self._add(Entry(step, generation, {}, self._says(generation, trained)))
        self._add(Entry(step, generation, values))

    def _says(self, generation: int, step: int) -> str:
        ranks = self._session.world_size
        return (
            f"generation {generation}: {ranks} ranks went on at step {step}; `holdfast why` says what failed"
        )

    def completed(self) -> None:
        """A step is complete: its entries count."""
        if self._session.rank == 0:
            self._give()
        else:
            self.leave()

    def leave(self) -> None:
        """This process is not rank 0: what it has not written, rank 0 writes."""
        self._given.clear()
        self._writer.leave()

    def _give(self) -> None:
        """Give the writer what it does not have."""
        entries = list(self._merged())
        keys = [(entry.step, entry.generation, bool(entry.note)) for entry in entries]
        new = [entry for key, entry in zip(keys, entries, strict=True) if key not in self._given]
        self._given = set(keys)
        if new:
            self._writer.put(new)
        behind = self._writer.waiting > len(entries)
        if behind and not self._behind:
            log.warning(_BEHIND, self._writer.waiting, len(entries))
        self._behind = behind

    def _merged(self) -> Iterator[Entry]:
        """All entries in the order in which they were added."""
        notes = deque(self._notes)
        for entry in self._values:
            while notes and notes[0].generation <= entry.generation:
                yield notes.popleft()
            yield entry


def _entries(state: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries of a state, in their order. States of before had them in lines of their own."""
    lines = [json.loads(line) for line in state["lines"].splitlines()]
    if OF_FAILURES not in state:
        yield from (Entry(*line) for line in lines)
        return
    began, generation = deque(json.loads(state[OF_FAILURES])), 0
    for step, values in lines:
        while began and began[0][0] <= step:
            at, generation, note = began.popleft()
            if note:
                yield Entry(at, generation, {}, note)
        yield Entry(step, generation, values)
