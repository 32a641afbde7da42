"""What a script tells of itself through its session: numbers, faults, phases that take longer than a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.telemetry import numbers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast.telemetry.progress import Progress
    from holdfast.telemetry.reporting import Reports


class Telling:
    """This part of a session."""

    _completed: int
    _numbers: numbers.Numbers
    _progress: Progress
    _reports: Reports

    def report(self, **values: Any) -> None:
        """Show numbers to the operator, once a second at most. Tensors are read later, off this thread."""
        self._reports.add(values, self._completed)

    def check(self, loss: Any, *, every: int = numbers.LOOK_EVERY) -> None:
        """Have a loss that is NaN or Inf noticed; what follows is the job's policy (--on-nan). A tensor on a
        GPU is looked at every `every` steps, for the GPU is waited for then; anything else at once."""
        self._numbers.check(loss, every)

    def fault(self, why: str, *, rollback: bool = True) -> NoReturn:
        """The numbers are wrong, by the script's own judgement: all ranks go back to an older state, or with
        `rollback` false the job stops with this reason. Raises SessionError where there is no agent."""
        self._numbers.fault(why, rollback=rollback)

    def phase(self, name: str, *, timeout_s: float | None = None) -> AbstractContextManager[None]:
        """Declare what is done within: compile, checkpoint, evaluate or data. It may take longer than a step;
        a rank that has not left it after `timeout_s` counts as hung (by default long: see hangs in the docs).
        Raises SessionError on another name."""
        return self._progress.phase(name, timeout_s)
