"""One step of a session: begun, completed, shown, or left in the middle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.clean.guard import DIRTY
from holdfast.errors import Interrupted, SessionError
from holdfast.reentry import meeting
from holdfast.snapshots import keeping
from holdfast.state.randomness import seed_step

if TYPE_CHECKING:
    from holdfast.session import Session


def check_interrupted(session: Session) -> None:
    """Raise Interrupted when this generation is known to be broken."""
    if session._gate is not None and session._gate.interrupted(session._generation):
        raise Interrupted


def begin(session: Session, seed: int | None) -> None:
    """A step begins. Raises Interrupted when the generation is broken, or ends at this boundary."""
    check_interrupted(session)
    halted = session._gate is not None and session._gate.halted(session._generation)
    if halted and not session._guard.carries:  # else at the next boundary without gradients of its own
        raise Interrupted
    step = session._completed
    session._proof.begin()
    session._streams.begin()
    session._guard.begin(step, keep_random=seed is None, whole=session._fresh)
    if seed is not None:
        seed_step(seed, session.step, session._rank // session.layout.tp)
    if session._board is not None:
        session._board.step = step
        session._board.step_started_ns = time.monotonic_ns()
        session._progress.begin_step()


def after_break(session: Session) -> None:
    """A loop over steps is over. One that was left within a step, by the script's own `break`, is the end of
    the step's body if an optimizer has moved, or if what it did cannot be undone. Else the step comes again.
    Raises SessionError when the ranks have not left it at the same place."""
    guard = session._guard
    if not guard.entered:
        return
    moved = int(guard.moved) if guard.left_half and session._tracked.optimizers else _UNASKED
    _refuse_apart(meeting.gather(session, [session._completed, int(guard.left_half), moved]))
    if not guard.left_half:
        return
    found = DIRTY if guard.moved else guard.settle(session._completed)
    if found == DIRTY:
        complete(session)
    else:
        session._completed = found
        session._uncommitted.clear()


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


def between(session: Session) -> None:
    """An elastic function is over: what the script draws behind it depends on that alone, in a process that
    was started again, too."""
    if session._seed is not None:
        seed_step(session._seed, session.step, 0)


def complete(session: Session) -> None:
    """The step is complete: write it down, tell the script, and take the snapshot that is due. Raises
    CollectiveFailed."""
    session._proof.check("the step")
    session._streams.end()
    session._guard.end()
    session._completed += 1
    session._fresh = False
    session._progress.show("between")
    now = record(session, session._completed - 1)
    session._after.run(session._completed - 1)
    if session._gate is not None:
        keeping.after_step(session, session._gate, now)


def record(session: Session, step: int) -> int:
    """Write down that a step is complete; when (CLOCK_MONOTONIC, ns).

    Its samples are committed with the next boundary that carries no gradients: a break before goes back
    behind it."""
    now = time.monotonic_ns()
    if session._board is not None:
        session._board.completed_ns = now
        session._board.completed = step + 1
    session._uncommitted.append(step)
    if not session._guard.carries:
        commit(session)
    return now


def commit(session: Session) -> None:
    """Write the steps that are complete into the ledger."""
    if session._ledger is not None:
        for step in session._uncommitted:
            session._ledger.committed(step, session._generation, session._rank)
    session._uncommitted.clear()
