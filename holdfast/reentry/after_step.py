"""Run the script's callbacks after each step, also when the ranks had to form anew behind it.

A callback runs behind the body of a step, where the step is complete on this rank. A rank that is broken
before its callback has returned, and one that takes a dead rank's place, would miss it: so where a generation
begins, all ranks run those of the step before once more if one of them has not. Callbacks may use collectives
for that."""

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
        self._done = -1  # the step whose callbacks have all returned last

    def add(self, callback: Callable[[int], object]) -> None:
        """Call it after each step from now on. Raises SessionError."""
        if self._state.entry.inside:
            raise SessionError("after_step: call it before the function under @session.elastic is entered")
        if not callable(callback):
            raise SessionError(
                f"after_step: {callback!r:.80} cannot be called: give a function of the step's number"
            )
        self._callbacks.append(callback)

    def run(self, step: int) -> None:
        """Call them: this rank has completed a step. Raises SessionError when a callback changes what is
        tracked."""
        if not self._callbacks:
            return
        before = self._state.guard.look()
        for callback in self._callbacks:
            callback(self._state.functions.local(step))
            if changed := self._state.guard.changed(before):
                name = getattr(callback, "__qualname__", repr(callback))
                raise SessionError(
                    f"after_step: {name} changes {changed}, which is tracked: a callback may run again for a "
                    "step, so move what trains into the step's body"
                )
        self._done = step

    def resume(self, step: int, gather: Callable[[list[int]], list[list[int]]]) -> None:
        """A generation begins with `step` completed steps: no rank goes on before all have run what follows
        the last of them. All ranks call it together; `gather` gives every rank's numbers."""
        if step > self._state.functions.base and any(
            late for (late,) in gather([int(self._done != step - 1)])
        ):
            self.run(step - 1)
        self._done = step - 1
