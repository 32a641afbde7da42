"""One step of a session: begun, completed, shown, or left in the middle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.errors import Interrupted
from holdfast.state import keeping
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
    if session._gate is not None and session._gate.halted(session._generation):
        raise Interrupted
    step = session._completed
    session._proof.begin()
    session._guard.begin(keep_random=seed is None, whole=session._fresh)
    if seed is not None:
        seed_step(seed, step, session._rank // session.layout.tp)
    if session._board is not None:
        session._board.step = step
        session._board.step_started_ns = time.monotonic_ns()
        session._progress.begin_step()


def after_break(session: Session) -> None:
    """A loop over steps was left within one, by the script's own `break`: it counts if an optimizer moved."""
    if session._guard.left_half and session._guard.moved:
        complete(session)
    else:
        session._guard.settle(session._completed)


def complete(session: Session) -> None:
    """The step is complete: write it down, and take the snapshot that is due. Raises CollectiveFailed."""
    session._proof.check("the step")
    session._guard.end()
    session._completed += 1
    session._fresh = False
    session._progress.show("between")
    now = record(session, session._completed - 1)
    if session._gate is not None:
        keeping.after_step(session, session._gate, now)


def record(session: Session, step: int) -> int:
    """Write down that a step is complete; when (CLOCK_MONOTONIC, ns)."""
    now = time.monotonic_ns()
    if session._board is not None:
        session._board.completed_ns = now
        session._board.completed = step + 1
    if session._ledger is not None:
        session._ledger.committed(step, session._generation, session._rank)
    return now
