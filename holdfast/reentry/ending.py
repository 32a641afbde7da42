"""How an elastic function ends: its value is kept with its final state, and all ranks return from it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.reentry import joining, stepping
from holdfast.snapshots import keeping

if TYPE_CHECKING:
    from holdfast.reentry.agent_client import Gate
    from holdfast.session import Session

_LAST_SNAPSHOT_S = 60.0  # how long the end of training waits for room for its snapshot
_POLL_S = 0.05


def keep_value(session: Session, name: str, result: Any) -> None:
    """Keep what the function has returned on all ranks, if that is something."""
    found = joining.same_value(session, result)
    if found.any:
        session._completed = session._functions.end(
            name, session._completed, found.value, found.refused, kept=found.kept
        )


def say(session: Session, gate: Gate) -> str:
    """Say that the function is over here, with its final state. Why there is no snapshot of that; "" when
    there is."""
    reason = keeping.last(session, gate)
    session._held = session._ended = session._completed
    gate.say({"op": "finished", "generation": session._generation, "step": session._completed}, keep=True)
    session._phase = "finished"
    session._progress.show("finished")
    return reason


def wait_for_room(session: Session, gate: Gate, reason: str) -> None:
    """Try for the last snapshot again: what holds its slot goes once the coordinator knows that all have
    finished."""
    deadline = time.monotonic() + _LAST_SNAPSHOT_S
    while reason and not over(session, gate) and time.monotonic() < deadline:
        if gate.interrupted(session._generation):
            return
        gate.wait(lambda orders: orders.interrupted >= session._generation, _POLL_S)
        reason = keeping.snapshot(session, gate)
    if reason:
        keeping.skipped(session, gate, reason)


def over(session: Session, gate: Gate) -> bool:
    """Whether the ranks may return from the function they have finished, or the job is over."""
    return gate.orders.complete is not None or gate.orders.returned >= session._generation


def leave(session: Session, gate: Gate, name: str) -> None:
    """All ranks have finished, and the final state is safe: the script goes on, without its groups."""
    known = session._functions
    session._asking.end("the training is over, and nothing was said of the checkpoint")
    session._groups.dissolve()
    gate.forget("finished")
    known.leave(name, session._completed)
    known.generation, known.completed = session._generation, session._completed
    known.held_in = session._held_in
    stepping.between(session)
