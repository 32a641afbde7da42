"""Begin and complete one step; decide what a step counts as that the script has left in the middle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.agreement import restore as state_restore
from holdfast.clean.guard import DIRTY
from holdfast.errors import Interrupted, SessionError
from holdfast.reentry import boundary, meeting
from holdfast.state.randomness import seed_step

if TYPE_CHECKING:
    from holdfast.ipc.formation import Resume
    from holdfast.rank_state import RankState
    from holdfast.reentry.runtime import Runtime


def restore(runtime: Runtime) -> None:
    """Put the state of this generation's first step into what is tracked, if that has not been done yet."""
    runtime.mistakes.used = True
    entry = runtime.state.entry
    pending = entry.pending
    if pending is not None:
        runtime.state.check_interrupted()
        pending()
        entry.pending = None


def put_in_place(runtime: Runtime, resume: Resume, port: int) -> set[int]:
    """Give this rank the state that a generation begins with, and the streams of data their places in it. The
    ports at which the ranks' groups were accepted. Raises RestoreError, ArenaError or SessionError."""
    ports = state_restore.restore(runtime.state, runtime.equality, runtime.generators, resume, port)
    runtime.streams.restored(resume)
    return ports


def begin(runtime: Runtime, seed: int | None) -> None:
    """Begin a step. Raises Interrupted when the generation is broken, or ends at this boundary."""
    state = runtime.state
    state.check_interrupted()
    guard = state.guard
    halted = state.agent is not None and state.agent.halted(state.generation)
    if halted and not guard.carries:  # else at the next boundary without gradients of its own
        raise Interrupted
    step = state.completed
    runtime.collectives.begin()
    runtime.streams.begin(guard.anchor if guard.carries else step)
    guard.begin(step, keep_random=seed is None, whole=state.entry.fresh)
    if seed is not None:
        seed_step(seed, state.step, state.rank // state.layout.tp)
    if state.page is not None:
        state.page.step = step
        state.page.step_started_ns = time.monotonic_ns()
        state.progress.begin_step()


def after_break(runtime: Runtime) -> None:
    """Decide what a loop that the script has left within a step means. The step is complete if an optimizer
    has moved, or if what it did cannot be undone; else it comes again. Raises SessionError when the ranks
    have not left it at the same place."""
    state = runtime.state
    guard = state.guard
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
"""Of a rank that has no optimizer (a stage that is frozen), or has not left its loop within a step."""


def _refuse_apart(rows: list[list[int]]) -> None:
    """Raise SessionError when these (steps completed, left within one, an optimizer has moved) differ."""
    known = next((row[2] for row in rows if row[2] != _UNASKED), 0)
    places = [_place(row[0], row[1], known if row[2] == _UNASKED else row[2]) for row in rows]
    other = next((rank for rank, place in enumerate(places) if place != places[0]), 0)
    if other:
        told = ", ".join(f"rank {rank} has left it {places[rank]}" for rank in (0, other))
        raise SessionError(
            f"the ranks have left the loop over steps at different places: {told}. Leave it in the same step "
            "on all ranks, and on one side of the optimizer: decide with what is equal on all of them "
            "(session.step, a loss that was reduced)"
        )


def _place(completed: int, left_half: int, moved: int) -> str:
    if not left_half:
        return f"with {completed} steps completed"
    return f"in step {completed}, {'after' if moved else 'before'} its optimizer"


def between(state: RankState) -> None:
    """Seed for what the script draws between two elastic functions: by the end of the one before alone, so
    that a process that was started again draws the same."""
    if state.seed is not None:
        seed_step(state.seed, state.step, 0)


def complete(runtime: Runtime) -> None:
    """Complete the step: write it down, call the script's callbacks, and take the snapshot that is due.
    Raises CollectiveFailed."""
    state = runtime.state
    runtime.collectives.check("the step")
    runtime.streams.end()
    state.guard.end()
    state.completed += 1
    state.entry.fresh = False
    state.progress.show("between")
    now = record(runtime, state.completed - 1)
    runtime.after_step.run(state.completed - 1)
    if state.agent is not None:
        boundary.after_step(runtime, state.agent, now)


def record(runtime: Runtime, step: int) -> int:
    """Write down that a step is complete; when (CLOCK_MONOTONIC, ns).

    Its samples are committed with the next boundary that carries no gradients: a break before goes back
    behind it."""
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
    """Write complete steps into the ledger."""
    state, ledger = runtime.state, runtime.streams.ledger
    if ledger is not None:
        for step in state.uncommitted:
            ledger.committed(step, state.generation, state.rank)
    state.uncommitted.clear()
