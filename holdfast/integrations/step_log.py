"""Log numbers of a job step by step, each step once, through failures, moves of rank 0 and whole restarts.

All ranks give the same numbers; rank 0 writes them, in a thread (`log_writer`). The newest entries are part
of the tracked state: a process that becomes rank 0 has those that its predecessor may not have written, and
opens the logger at the oldest of them. Which of them the log has already is for the logger to know: a file or
TensorBoard drops what it has from that step on, a server is asked for its newest step."""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError
from holdfast.integrations.log_writer import Entry, Logger, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.session import Session

Key = tuple[int, int, bool]
_BEHIND = "%d entries wait for the logger, and the state has the newest %d: the others die with rank 0"
log = logging.getLogger("holdfast.sdk")


class StepLog:
    """The log of a job. Track it, and call it in the body of a step:

        log = StepLog(session, OpenLog)
        session.track(model=model, optimizer=optimizer, log=log)
        ...
            log({"loss": loss})  # equal on all ranks
        ...
        train()
        log.finish()

    - `open_logger(step)`: called in a thread of rank 0 with the first step that will be written; returns an
      object with `write(step, values)`, `note(step, text)` and `close(finished=...)`, for that thread. It
      must forget, or not write again, what the log has of this step and of later ones. What raises is tried
      again.
    - `keep`: how many of the newest entries are part of the state. If more wait, because the logger is down,
      and rank 0 dies too, the older ones are lost; the output warns of that when it begins.
    - `capacity`: how many entries may wait for the logger. If more do, the oldest are dropped, and the output
      and the log say which.

    A step is counted over all elastic functions of the script. Make it before the elastic function. Raises
    SessionError for arguments that do not fit."""

    def __init__(
        self,
        session: Session,
        open_logger: Callable[[int], Logger],
        *,
        keep: int = 100,
        capacity: int = 10_000,
    ) -> None:
        if not callable(open_logger):
            raise SessionError(f"StepLog: {open_logger!r:.80} is not callable: give a function of a step")
        if not 1 <= keep <= capacity:
            raise SessionError(f"StepLog: keep={keep}, capacity={capacity}: needed are 1 <= keep <= capacity")
        self._session, self._state = session, session.runtime.state
        self._writer = LogWriter(open_logger, capacity)
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._lines: deque[str] = deque(maxlen=keep)
        self._given: set[Key] = set()  # what this process has given to its writer
        self._behind = False
        session.after_step(self._completed)

    def __call__(self, values: Mapping[str, float]) -> None:
        """Log these numbers of the running step. Several calls in a step add up.

        Raises SessionError if a value is no number, outside of the elastic function, or if this is not
        tracked."""
        if not self._state.entry.inside:
            raise SessionError("StepLog: call it in the body of a step, under @session.elastic")
        if not any(thing is self for thing in self._state.tracked.objects.values()):
            raise SessionError(
                "StepLog: it is not tracked, so a new rank 0 would lose entries: session.track(log=log)"
            )
        step, generation = self._state.completed, self._session.generation
        numbers = {str(name): _number(name, value) for name, value in values.items()}
        last = self._entries[-1] if self._entries else None
        if last is not None and last.generation != generation:
            self._add(Entry(step, generation, {}, self._says(generation, step)))
        elif last is not None and last.step == step and not last.note:
            self._entries.pop()
            self._lines.pop()
            numbers = {**last.values, **numbers}
        self._add(Entry(step, generation, numbers))

    def finish(self, timeout_s: float = 60.0) -> bool:
        """Write what is left and close the logger as finished. To be called on all ranks, after the last
        elastic function; ranks other than 0 return at once.

        Returns False, and says how much is missing, if the logger takes longer than `timeout_s`."""
        if self._session.rank != 0:
            return True
        self._give()
        first = self._entries[0].step if self._entries else self._state.completed
        return self._writer.finish(first, timeout_s)

    def state_dict(self) -> dict[str, Any]:
        """The newest entries, as JSON lines."""
        return {"lines": "\n".join(self._lines)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the newest entries."""
        self._entries.clear()
        self._lines.clear()
        for line in state["lines"].splitlines():
            self._add(Entry(*json.loads(line)))

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._lines.append(json.dumps([entry.step, entry.generation, dict(entry.values), entry.note]))

    def _says(self, generation: int, step: int) -> str:
        ranks = self._session.world_size
        return (
            f"generation {generation}: {ranks} ranks went on at step {step}; `holdfast why` says what failed"
        )

    def _completed(self, _step: int) -> None:
        """A step is complete: its entries count."""
        if self._session.rank == 0:
            self._give()
        else:
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


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise SessionError(f"StepLog: {name}={value!r:.80} is not a number; give a float") from None
