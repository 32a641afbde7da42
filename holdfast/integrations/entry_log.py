"""Keep the newest entries of a log as tracked state, and have rank 0 write them (`log_writer`).

So a process that becomes rank 0 has those that its predecessor may not have written, and opens the logger at
the oldest of them. What the log has of them is for the logger to know."""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.integrations.log_writer import Entry, Logger, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._lines: deque[str] = deque(maxlen=keep)
        self._given: set[Key] = set()  # what this process has given to its writer
        self._behind = False

    def finish(self, timeout_s: float = 60.0) -> bool:
        """Write what is left and close the logger as finished. To be called on all ranks, after the last
        elastic function; ranks other than 0 return at once.

        Returns False, and says how much is missing, if the logger takes longer than `timeout_s`."""
        if self._session.rank != 0:
            return True
        self._give()
        return self._writer.finish(self._entries[0].step if self._entries else self._next, timeout_s)

    def state_dict(self) -> dict[str, Any]:
        """The newest entries, as JSON lines."""
        return {"lines": "\n".join(self._lines)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the newest entries."""
        self._entries.clear()
        self._lines.clear()
        for line in state["lines"].splitlines():
            self._add(Entry(*json.loads(line)))

    # ------------------------------------------------------------------ for the classes below

    @property
    def _next(self) -> int:
        """The step of the next entry."""
        return self._entries[-1].step + 1 if self._entries else 0

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._lines.append(json.dumps([entry.step, entry.generation, dict(entry.values), entry.note]))

    def _add_values(self, step: int, values: Mapping[str, float], trained: int) -> None:
        """Add an entry; before the first one of a generation, that it has begun at the step `trained`."""
        generation, last = self._session.generation, self._entries[-1] if self._entries else None
        if last is not None and last.generation != generation:
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
        keys = [(entry.step, entry.generation, bool(entry.note)) for entry in self._entries]
        new = [entry for key, entry in zip(keys, self._entries, strict=True) if key not in self._given]
        self._given = set(keys)
        if new:
            self._writer.put(new)
        behind = self._writer.waiting > len(self._entries)
        if behind and not self._behind:
            log.warning(_BEHIND, self._writer.waiting, len(self._entries))
        self._behind = behind
