"""Run the script's callbacks after each step, also if the ranks form a new generation right after it.

A callback runs after the body of a step, when the step is complete on this rank. A rank that breaks before
its callback has returned, or one that replaces a dead rank, would miss it. So when a generation begins, all
ranks run the callbacks of the step before once more if one rank has not. All of them do, because callbacks
may use collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rank_state import RankState


class AfterStep:
    """The callbacks that a script has registered."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._callbacks: list[Callable[[int], object]] = []
        self._done = -1  # the newest step whose callbacks have all returned

    def add(self, callback: Callable[[int], object]) -> None:
        """Call `callback` after each step from now on. Raises SessionError."""
        if self._state.entry.inside:
            raise SessionError("after_step: call it before the function under @session.elastic is entered")
        if not callable(callback):
            raise SessionError(
                f"after_step: {callback!r:.80} is not callable: give a function that takes the step's number"
            )
        self._callbacks.append(callback)

    def run(self, step: int) -> None:
        """Call the callbacks for a step that this rank has completed.

        Raises SessionError if a callback changes tracked state."""
        if not self._callbacks:
            return
        before = self._state.guard.look()
        for callback in self._callbacks:
            callback(self._state.functions.local(step))
            if changed := self._state.guard.changed(before):
                name = getattr(callback, "__qualname__", repr(callback))
                raise SessionError(
                    f"after_step: {name} changes {changed}, which is tracked. A callback may run twice for a "
                    "step: move code that changes tracked state into the body of the step"
                )
        self._done = step

    def resume(self, step: int, gather: Callable[[list[int]], list[list[int]]]) -> None:
        """Begin a generation with `step` completed steps: run the last one's callbacks if some rank has not.

        All ranks call it together, and none goes on before that. `gather` returns every rank's numbers."""
        if step > self._state.functions.base and any(
            late for (late,) in gather([int(self._done != step - 1)])
        ):
            self.run(step - 1)
        self._done = step - 1
