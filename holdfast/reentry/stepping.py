"""Begin and complete steps; decide whether a step that the script left in the middle counts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from holdfast.agreement import restore as state_restore
from holdfast.clean.guard import DIRTY
from holdfast.errors import Interrupted, SessionError
from holdfast.reentry import boundary, meeting, snapshotting
from holdfast.state.randomness import seed_step

if TYPE_CHECKING:
    from holdfast.ipc.formation import Resume
    from holdfast.rank_state import RankState
    from holdfast.reentry.runtime import Runtime

log = logging.getLogger("holdfast.sdk")


def restore(runtime: Runtime) -> None:
    """Restore the state of this generation's first step into the tracked objects, unless that is done."""
    runtime.mistakes.used = True
    entry = runtime.state.entry
    pending = entry.pending
    if pending is not None:
        runtime.state.check_interrupted()
        pending()
        entry.pending = None


def watch_for_overwriting(runtime: Runtime) -> None:
    """The elastic function is entered, with its state restored: until its first step, it should stay so.

    The integrations' own functions know what they do."""
    if not runtime.forgotten.entered_function.__module__.startswith("holdfast.integrations"):
        runtime.state.guard.beside.watch(states=True)


def refuse_overwriting(runtime: Runtime) -> None:
    """See that what came before the first step has left the state that was restored.

    Where training begins, it may change what it begins with; rank 0 tells that it may not do so again. So it
    may after a loop that has just ended. Raises SessionError if it has done so later."""
    state = runtime.state
    beside, name = state.guard.beside, runtime.forgotten.entered_function.__name__
    if not beside.watching:
        return
    if state.step and state.step == state.entry.counted:
        _tell_of_changes_between(state, name)
    elif not state.entry.fresh:
        if changed := beside.overwritten():
            raise SessionError(_OVERWRITTEN.format(name=name, changed=changed))
    elif (changed := beside.changed_values()) and state.rank == 0:
        log.warning(_OVERWRITES, name, changed)


def _tell_of_changes_between(state: RankState, name: str) -> None:
    if state.rank or state.entry.told_between or not (changed := state.guard.beside.values_moved()):
        return
    state.entry.told_between = True
    log.warning(_OVERWRITES_BETWEEN, name, changed)


_OVERWRITES_BETWEEN = (
    "%s changes %s between two loops over steps. After a failure in the later one it is called again, with "
    "the state that training has come to, and is refused if it overwrites that. Do it in a step, as in "
    "`if step == ...:`"
)
_OVERWRITES = (
    "%s changes %s before its first step. After a failure it is called again, with the state that training "
    "has come to, and is refused if it overwrites that: do it before the function is called"
)
_OVERWRITTEN = (
    "{name} has changed {changed} before its first step. It is called again after a failure, with the state "
    "that training has come to, and would train on with what it has put in its place: initial weights, or a "
    "checkpoint of the script's own. Do that before the function is called, or, between two loops over "
    "steps, in a step; Holdfast restores what is tracked"
)


def put_in_place(runtime: Runtime, resume: Resume, port: int) -> set[int]:
    """Restore the state that a generation begins with, and the positions of the data streams.

    Returns the ports at which the ranks' groups were accepted. Raises RestoreError, ArenaError or
    SessionError."""
    ports = state_restore.restore(runtime.state, runtime.equality, runtime.generators, resume, port)
    runtime.streams.restored(resume)
    return ports


def begin(runtime: Runtime, seed: int | None) -> None:
    """Begin a step. Raises Interrupted if the generation is broken, or is to end at this boundary.

    A generation that is to end does so only at a boundary that carries no gradients: they are in no state."""
    state = runtime.state
    state.check_interrupted()
    guard = state.guard
    halted = state.agent is not None and state.agent.halted(state.generation)
    if halted and not guard.carries:  # else at the next boundary without carried gradients
        raise Interrupted
    step = state.completed
    runtime.collectives.begin()
    runtime.streams.begin(guard.anchor if guard.carries else step)
    guard.begin(step, keep_random=seed is None, whole=state.entry.fresh)
    runtime.gradients.begin()
    runtime.equality.begin_step()
    if seed is not None:
        seed_step(seed, state.step, state.seed_group)
    if state.page is not None:
        state.page.step = step
        state.page.step_started_ns = time.monotonic_ns()
        state.progress.begin_step()


def after_break(runtime: Runtime) -> None:
    """Decide whether a step counts that the script left by `break`.

    It is complete if an optimizer has moved, or if what it did cannot be undone; otherwise it runs again.
    Raises SessionError if the ranks have not left it at the same place."""
    state = runtime.state
    guard = state.guard
    state.times.stop()
    snapshotting.settle(state)
    if not guard.entered:
        return
    moved = int(guard.moved) if guard.left_half and state.tracked.optimizers else _UNASKED
    _refuse_apart(meeting.gather(state, [state.completed, int(guard.left_half), moved]))
    if not guard.left_half:
        return
    found = DIRTY if guard.moved else guard.settle(state.completed)
    if found == DIRTY:
        complete(runtime)
    else:
        state.completed = found
        state.uncommitted.clear()


_UNASKED = -1
"""The answer of a rank without an optimizer (a frozen stage), or of one that is not inside a step."""


def _refuse_apart(rows: list[list[int]]) -> None:
    """Raise SessionError if rows differ. A row: (steps completed, left inside a step, an optimizer has
    moved)."""
    known = next((row[2] for row in rows if row[2] != _UNASKED), 0)
    places = [_place(row[0], row[1], known if row[2] == _UNASKED else row[2]) for row in rows]
    other = next((rank for rank, place in enumerate(places) if place != places[0]), 0)
    if other:
        where = ", ".join(f"rank {rank} left it {places[rank]}" for rank in (0, other))
        raise SessionError(
            f"the ranks left the loop over steps at different places: {where}. Leave it in the same step on "
            "all ranks, and either before or after the optimizer on all: decide by a value that is equal on "
            "all ranks (session.step, a reduced loss)"
        )


def _place(completed: int, left_half: int, moved: int) -> str:
    if not left_half:
        return f"with {completed} steps completed"
    return f"in step {completed}, {'after' if moved else 'before'} its optimizer"


def between(state: RankState) -> None:
    """Seed for the script's code between two elastic functions.

    The seed follows from the end of the last function and its number alone, so that a process that was
    started again draws the same numbers."""
    if state.seed is not None:
        seed_step(state.seed, state.step, state.functions.called - 1)


def complete(runtime: Runtime) -> None:
    """Complete the step: record it, call the script's callbacks, and take a snapshot if one is due.

    Raises CollectiveFailed if a collective of the step may have failed."""
    state = runtime.state
    runtime.collectives.check("the step")
    snapshotting.settle(state)  # a step without an optimizer; callbacks may write the state
    state.guard.sharded.hold()
    runtime.gradients.end(runtime.streams.taken)
    runtime.streams.end()
    state.guard.end()
    state.completed += 1
    state.entry.fresh = False
    state.progress.show("between")
    now = record(runtime, state.completed - 1)
    runtime.after_step.run(state.completed - 1)
    state.guard.sharded.hold()  # callbacks may evaluate the model
    if state.agent is not None:
        boundary.after_step(runtime, state.agent, now)


def record(runtime: Runtime, step: int) -> int:
    """Record that a step is complete. Returns when (CLOCK_MONOTONIC, ns).

    Its samples are committed at the next boundary that carries no gradients: a break before that boundary
    undoes the step."""
    state = runtime.state
    now = time.monotonic_ns()
    if state.page is not None:
        state.page.completed_ns = now
        state.page.completed = step + 1
    state.uncommitted.append(step)
    if not state.guard.carries:
        commit(runtime)
    return now


def commit(runtime: Runtime) -> None:
    """Write complete steps to the sample ledger."""
    state, ledger = runtime.state, runtime.streams.ledger
    if ledger is not None:
        for step in state.uncommitted:
            ledger.committed(step, state.generation, state.rank)
    state.uncommitted.clear()
