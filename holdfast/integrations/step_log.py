"""Log numbers of a job step by step, each step once, through failures, moves of rank 0 and whole restarts.

All ranks give the same numbers; rank 0 writes them, in a thread (`log_writer`). The newest entries are part
of the tracked state: a process that becomes rank 0 has those that its predecessor may not have written, and
opens the logger at the oldest of them. Which of them the log has already is for the logger to know: a file or
TensorBoard drops what it has from that step on, a server is asked for its newest step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError
from holdfast.integrations.entry_log import EntryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.integrations.log_writer import Logger
    from holdfast.session import Session


class StepLog(EntryLog):
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
        super().__init__(session, open_logger, keep, capacity)
        self._state = session.runtime.state
        session.after_step(lambda _step: self.completed())

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
        step = self._state.completed
        numbers = {str(name): _number(name, value) for name, value in values.items()}
        last = self._values[-1] if self._values else None
        if last is not None and (last.step, last.generation) == (step, self._session.generation):
            self._values.pop()
            self._lines.pop()
            numbers = {**last.values, **numbers}
        self._add_values(step, numbers, step)

    @property
    def _next(self) -> int:
        return self._state.completed


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise SessionError(f"StepLog: {name}={value!r:.80} is not a number; give a float") from None
