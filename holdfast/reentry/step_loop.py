"""Lead through the steps of one loop: begin a step, complete it, leave the loop.

`steps` does so as a generator. Where a trainer owns the loop and only calls back, `begin_step` and `end_step`
drive the same loop from outside. Such a loop belongs to one generation: when the elastic function is left, it
is dropped, and the next generation begins another one at the step where the state is."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from holdfast.agreement import generators
from holdfast.anatomy.gpu import GpuTimes
from holdfast.anatomy.phases import PHASES
from holdfast.errors import SessionError
from holdfast.reentry import misuse, snapshotting, stepping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.holds import Holds
    from holdfast.reentry.runtime import Runtime

log = logging.getLogger("holdfast.sdk")
_HOLD_LOOK_S = 0.02
"""The pause between two looks whether a step that is held may begin."""


class StepLoop:
    """The steps of one loop in one generation, up to `total`. `seed`: of the random generators; None: they
    are the script's."""

    def __init__(self, runtime: Runtime, total: int, seed: int | None) -> None:
        self._runtime, self._state = runtime, runtime.state
        self.total, self._seed = total, seed
        self._number = 0
        self.running = False  # a step has begun, and has not ended

    def open(self) -> None:
        """Begin to record, before the first step."""
        state = self._state
        for module in state.tracked.modules:
            self._runtime.calls.watch(module)
        if state.times.on and state.times.gpu is None and state.device.type == "cuda":
            state.times.gpu = GpuTimes(PHASES)
        self._number = state.times.begin()
        total = self.total if self.left() else None
        self._runtime.again.steps_begin(total, seeded=self._seed is not None, tells=self._tells)
        if self._tells:
            self._runtime.forgotten.begin(joins=state.entry.first >= 0)

    @property
    def _tells(self) -> bool:
        """Whether this rank tells what the steps change and nothing keeps."""
        return self._state.agent is not None and self._state.rank == 0

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the steps that are left. Each is complete when the next is asked for."""
        self.open()
        try:
            while self.left():
                yield self.begin()
                self.end()
            if self._state.agent is not None:
                stepping.watch_for_overwriting(self._runtime)
        finally:
            self.leave()

    def left(self) -> bool:
        """Whether there are steps left."""
        return self._state.step < self.total

    def begin(self) -> int:
        """Begin the next step. Returns its number. Raises Interrupted."""
        if self._state.environment.holds is not None:
            self._hold(self._state.environment.holds)
        stepping.begin(self._runtime, self._seed)
        self._runtime.profiler.begin_step(self._state.completed, self._state.generation)
        self.running = True
        return self._state.step

    def _hold(self, holds: Holds) -> None:
        """Wait until a rehearsal lets this step begin. Raises Interrupted."""
        state = self._state
        if state.guard.carries or not holds.holding(state.completed):
            return
        with state.progress.phase("evaluate", None):  # not a step: it may take long
            while held := holds.held(state.completed):
                state.check_interrupted()
                if state.agent is not None and any(map(state.spacing.due_in_any_case, held)):
                    snapshotting.last(state, state.agent)  # its checkpoint is waited for
                time.sleep(_HOLD_LOOK_S)

    def end(self) -> None:
        """Complete the step. Raises CollectiveFailed if a collective of it may have failed."""
        runtime, state = self._runtime, self._state
        self.running = False
        state.times.body_ends()
        stepping.complete(runtime)
        runtime.profiler.end_step()
        state.times.complete(state.completed - 1, state.generation, runtime.streams.taken)
        if state.agent is not None:
            runtime.again.step_ended(tells=self._tells)
            runtime.forgotten.step_ended(tells=self._tells)
        if self._tells:
            runtime.mistakes.step_ended()

    def leave(self) -> None:
        """Leave the loop: its steps are done, or it is broken off, perhaps inside of a step."""
        state = self._state
        if self.running:
            state.progress.mark("none")  # how long a step took that was broken off says nothing about steps
        state.times.stop(self._number)
        self._runtime.profiler.leave(
            f"the rank has left its steps of generation {state.generation} (done, or broken off)"
        )
        state.progress.mark("after")


def prepare(runtime: Runtime, total: int, seed: int | str | None, tail: str) -> StepLoop:
    """Restore the state, and prepare for the steps that are left. The arguments are those of Session.steps.

    Raises SessionError for a wrong argument, outside the elastic function, or if the state does not fit."""
    misuse.check_steps(total, seed, tail)
    state = runtime.state
    misuse.check_inside(state, "steps")
    if runtime.own_steps is not None:
        raise SessionError("steps: begin_step has begun the steps of this function: use one of the two")
    state.guard.skippable = tail == "skippable"
    misuse.check_kept(state)
    chosen = seed if seed is None or isinstance(seed, int) else state.seed
    stepping.restore(runtime)
    stepping.refuse_overwriting(runtime)
    generators.record_lost(state, runtime.generators, chosen)
    stepping.after_break(runtime)
    state.entry.last_step = state.completed - state.step + total
    state.entry.seed = chosen
    runtime.training_end.loop(total)
    return StepLoop(runtime, total, chosen)


def counted(runtime: Runtime, total: int, seed: int | str | None, tail: str) -> StepLoop:
    """The same for a loop that counts for itself. Raises SessionError also if the loop before it has counted
    as far: as with a loop in every epoch."""
    loop, entry = prepare(runtime, total, seed, tail), runtime.state.entry
    if not loop.left() and 0 < total <= entry.counted:
        raise SessionError(
            f"steps({total}): the loop before this one has counted to {entry.counted}, so this one has "
            "nothing to do: steps are counted through the whole function, not in each epoch. Write one loop "
            "over all of them, as in `for step in session.steps(epochs * per_epoch)`, with `epoch = step // "
            "per_epoch`; or give each loop the number of steps at its end"
        )
    if loop.left() and runtime.state.step < entry.counted != total and runtime.state.rank == 0:
        log.warning(_LEFT, total, entry.counted, runtime.state.step)
    entry.counted = max(entry.counted, total)
    return loop


_LEFT = (
    "steps(%d): the loop before this one, over steps(%d), was left at step %d. After a failure the function "
    "is called again, and the steps that are left fall to that loop: what this one does is not done. Let one "
    "loop decide in each step what to do, by tracked state; or put the loops in two elastic functions"
)


def begin_step(runtime: Runtime, total: int, seed: int | str | None, tail: str) -> int | None:
    """Begin a step; None: all are done. Raises SessionError."""
    misuse.check_inside(runtime.state, "begin_step")
    loop = runtime.own_steps
    if loop is not None and loop.running:
        raise SessionError(f"begin_step: step {runtime.state.step} has not ended: call end_step() first")
    if loop is not None and loop.total != total:
        raise SessionError(f"begin_step: total is {total!r:.80}, and was {loop.total}: do not change it")
    if loop is None:
        loop = prepare(runtime, total, seed, tail)
        runtime.own_steps = loop
        loop.open()
    if loop.left():
        return loop.begin()
    drop(runtime)
    runtime.state.check_interrupted()
    return None


def end_step(runtime: Runtime) -> None:
    """Complete the step. Raises SessionError if none has been begun."""
    loop = runtime.own_steps
    if loop is None or not loop.running:
        raise SessionError("end_step: no step has been begun: call begin_step() first")
    loop.end()


def drop(runtime: Runtime) -> None:
    """Forget the loop, if there is one: the elastic function is left, or all steps are done."""
    loop, runtime.own_steps = runtime.own_steps, None
    if loop is not None:
        loop.leave()
