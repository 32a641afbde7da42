"""Define the methods of Session that lead through the steps of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast.reentry import step_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.rank_state import RankState
    from holdfast.reentry.runtime import Runtime

R = TypeVar("R")


class StepMethods:
    """The part of a Session that leads through steps."""

    _runtime: Runtime
    _state: RankState

    def after_step(self, callback: Callable[[int], object]) -> None:
        """Call `callback(step)` after each complete step, on every rank that completed it: for evaluation,
        "save the best" or early stopping.

        It also runs if the ranks have to form a new generation right after the step. It runs once more for
        the same step if a process died meanwhile, or if the step runs again. So it must not change tracked
        state.

        Raises SessionError inside the elastic function, or if `callback` cannot be called."""
        self._runtime.after_step.add(callback)

    def steps(
        self,
        total: int,
        *,
        seed: int | str | None = "session",
        tail: Literal["required", "skippable"] = "required",
    ) -> Iterator[int]:
        """Yield the numbers of the steps that are left, up to `total - 1`, and restore the state before the
        first one.

        A step is complete when its body ends, that is, when the loop asks for the next one. A step left by
        `break` counts as complete if its optimizer has stepped or if it cannot be undone; otherwise it runs
        again.

        - `total`: steps of this elastic function, 0 or more.
        - `seed`: the seed of these steps, as in Session; "session": the session's own; None: leave the random
          generators to the script.
        - `tail`: how the part of the body after its last optimizer step is treated. "required": a step that
          breaks there runs again, which may cost up to --snapshot-every steps. "skippable": that part may be
          cut off; the step counts if all tracked state has changed as in every whole step, so a death there
          costs no step.

        Raises SessionError for a wrong argument, outside the elastic function, if the state does not fit, if
        the ranks left a loop at different places, or if a loop before this one has done all of its steps
        already."""
        yield from step_loop.counted(self._runtime, total, seed, tail).numbers()
        self._state.check_interrupted()

    def begin_step(
        self,
        total: int,
        *,
        seed: int | str | None = "session",
        tail: Literal["required", "skippable"] = "required",
    ) -> int | None:
        """Begin a step, where a trainer owns the loop and only calls back: the same as asking `steps` for the
        next number.

            while session.begin_step(1000) is not None:
                ...  # forward, backward, optimizer.step()
                session.end_step()

        The arguments are those of `steps`; give the same in every call. Returns the step's number, or None
        when all steps are done. The first call of a generation restores the state.

        Raises SessionError for a wrong argument, outside the elastic function, if the step before has not
        ended, or if the state does not fit."""
        return step_loop.begin_step(self._runtime, total, seed, tail)

    def end_step(self) -> None:
        """Complete the step that `begin_step` has begun: it counts, and a snapshot is taken if one is due.

        Raises SessionError if no step has been begun."""
        step_loop.end_step(self._runtime)

    def step_function(self, function: Callable[[], R]) -> Callable[[], R]:
        """Declare a function that is the whole step, and return it wrapped: call that in each step.

            @session.step_function
            def step():
                batch = data[session.sample_indices(len(data), global_batch=64)]
                ...  # forward, backward, optimizer.step(), zero_grad()

            for _ in session.steps(1000):
                step()

        Holdfast calls it by itself when replicas of the state have come to differ (--on-corrupt-state act): a
        replay of the steps tells damaged hardware from a fault of the script. So it takes no arguments, takes
        its samples by `sample_indices`, changes nothing but tracked state, and asks the session for step and
        rank each time: in a replay ranks also play each other's part. What it reports then is left out.

        Raises SessionError if it cannot be called without arguments."""
        return self._runtime.replay.declared.declare(function)
