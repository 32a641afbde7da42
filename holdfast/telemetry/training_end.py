"""Say at which step the training ends, as far as the script says so.

A script says it by `Session(total_steps=)`, for the whole job; or by the total of its loop over steps, which
ends the job too if no other loop follows. That is not known before one does. From then on, the end of a loop
is not shown any more. A trainer that counts in units of its own (batches, its optimizer's steps) says how
many of them are done, and how many there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.ipc.pages import training_end

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.rank_state import RankState

OPEN_FROM = 1 << 40
"""A loop with so many steps has no end: somebody else decides when the training is over."""


class TrainingEnd:
    """The end of one session's training. `total_steps`: as given to Session.

    Raises SessionError for a total that is none."""

    def __init__(self, state: RankState, total_steps: int | None) -> None:
        if total_steps is not None and (type(total_steps) is not int or total_steps < 1):
            raise SessionError(
                f"Session: total_steps must be an integer of 1 or more, not {total_steps!r:.80}"
            )
        self._state, self._total = state, total_steps
        self._loops: set[tuple[int, int]] = set()
        if state.page is not None:
            training_end.write(state.page, training_end.NONE)

    def loop(self, total: int) -> None:
        """A loop over steps begins, whose function has `total` steps at its end. The state is restored."""
        state, end = self._state, self._state.completed - self._state.step + total
        if self._total is not None:
            self._job(end if total < OPEN_FROM else 0)
        elif total >= OPEN_FROM:
            self._write(training_end.OPEN)
        else:
            self._loops.add((state.functions.called, end))
            self._write(training_end.SEVERAL if self._many else training_end.LOOP, end)

    def units(self, limits: Iterable[tuple[float, float]]) -> None:
        """A trainer has done so many units of so many, in the function that runs; of several limits, the one
        that is nearest to its end counts. A total that is not finite, or 0, is no limit.

        What is left has as many steps per unit as what is done."""
        state = self._state
        shares = [done / total for done, total in limits if 0 < total < math.inf and 0 <= done]
        if self._total is not None or state.page is None:
            return  # the script has said it: in steps
        if self._many:
            self._write(training_end.SEVERAL)
        elif not shares:
            self._write(training_end.OPEN)
        elif max(shares) > 0 and state.step > 0:
            left = state.step / min(max(shares), 1.0) - state.step
            self._write(training_end.TRAINER, state.completed + math.ceil(left))

    @property
    def _many(self) -> bool:
        return self._state.functions.called > 1 or len(self._loops) > 1

    def _job(self, loop_ends: int) -> None:
        state, functions = self._state, self._state.functions
        done = sum(each.steps for each in functions.finished) + state.step
        end = state.completed + (self._total or 0) - done
        kind = training_end.BEYOND if loop_ends > end else training_end.JOB
        self._write(kind, end)

    def _write(self, kind: str, step: int = 0) -> None:
        if self._state.page is not None:
            training_end.write(self._state.page, kind, step)
