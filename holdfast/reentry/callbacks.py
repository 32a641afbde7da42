"""Run the script's callbacks: after each step, when a generation forms, and when its function is left.

After a step: a callback runs when the body of a step has ended and the step is complete on this rank. A rank
that breaks before its callback has returned, or one that replaces a dead rank, would miss it. So when a
generation begins, all ranks run the callbacks of the step before once more if one rank has not. All of them
do, because callbacks may use collectives. In a seeded session they are seeded like a step, so they draw the
same random numbers each time; else they draw from the script's own, which go on as if they had been called
once.

A generation that has begun to form for a function is also left: so each call of the `on_form` callbacks is
followed by one of the `on_leave` callbacks, also if a callback or the function raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.state.randomness import GeneratorsAtStart, mix, seed_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rank_state import RankState


class AfterStep:
    """The callbacks that a script has registered."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._callbacks: list[Callable[[int], object]] = []
        self._done = -1  # the newest step whose callbacks have all returned
        self._begun = -1  # the newest one for which they were called
        # The script's own generators as they were then, where it seeds for itself.
        self._random: GeneratorsAtStart | None = None

    @property
    def callbacks(self) -> tuple[Callable[[int], object], ...]:
        """They, in their order."""
        return tuple(self._callbacks)

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
        state = self._state
        self._begun, self._random = step, None
        if state.seed is None or state.entry.seed is None:
            self._random = GeneratorsAtStart()
        if state.seed is not None:
            seed_step(mix(state.seed), state.functions.local(step), state.seed_group)
        self._call(step)
        if state.seed is not None and self._random is not None:
            self._random.restore()

    def _run_again(self, step: int) -> None:
        """Call them once more. The script's own random numbers go on as if they had been called once."""
        if not self._callbacks:
            return
        if self._state.seed is not None:
            self.run(step)
            return
        known = self._random if self._begun == step else None
        kept = None if known is not None and self._done < step else GeneratorsAtStart()
        if known is not None:
            known.restore()
        self._call(step)
        if kept is not None:  # they had returned here, or what this rank has been given is of later
            kept.restore()

    def _call(self, step: int) -> None:
        beside = self._state.guard.beside
        beside.watch()
        for callback in self._callbacks:
            callback(self._state.functions.local(step))
            if changed := beside.changed():
                name = getattr(callback, "__qualname__", repr(callback))
                raise SessionError(
                    f"after_step: {name} changes {changed}, which is tracked. A callback may run twice for a "
                    "step: move code that changes tracked state into the body of the step (averages of "
                    "weights too), and call model.eval() before an evaluation, or batch norm moves its "
                    "buffers"
                )
        beside.unwatch()
        self._done = step

    def resume(self, step: int, gather: Callable[[list[int]], list[list[int]]]) -> None:
        """Begin a generation with `step` completed steps: run the last one's callbacks if some rank has not.

        All ranks call it together, and none goes on before that. `gather` returns every rank's numbers."""
        if step > self._state.functions.base and any(
            late for (late,) in gather([int(self._done != step - 1)])
        ):
            self._run_again(step - 1)
        self._done = step - 1


class FormationCallbacks:
    """The callbacks that a script has registered, in their order."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._form: list[Callable[[], object]] = []
        self._leave: list[Callable[[], object]] = []
        self._formed = False

    def on_form(self, callback: Callable[[], object]) -> None:
        """Call it in every generation before the function is entered. Raises SessionError."""
        self._form.append(self._checked("on_form", callback))

    def on_leave(self, callback: Callable[[], object]) -> None:
        """Call it whenever the function is left. Raises SessionError."""
        self._leave.append(self._checked("on_leave", callback))

    def _checked(self, name: str, callback: Callable[[], object]) -> Callable[[], object]:
        if self._state.entry.inside:
            raise SessionError(f"{name}: call it before the function under @session.elastic is entered")
        if not callable(callback):
            raise SessionError(f"{name}: {callback!r:.80} is not callable: give a function without arguments")
        return callback

    def formed(self) -> None:
        """Rank, world size and process groups are those of a new generation."""
        self._formed = True
        for callback in self._form:
            callback()

    def left(self) -> None:
        """The function is left; the process groups still exist."""
        formed, self._formed = self._formed, False
        for callback in self._leave if formed else ():
            callback()
