"""What a session does besides training: news to its agent, and snapshots when they are due."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from holdfast.errors import StateError
from holdfast.ipc.shm import ArenaError
from holdfast.reentry import lines
from holdfast.state import shard_ids

if TYPE_CHECKING:
    from holdfast.reentry.agent_client import Gate
    from holdfast.session import Session

_POLL_S = 0.05
_OWED_TOLD = 3
"""After so many snapshots that were due and postponed, it is told why there are none."""
_FIRST_WAIT_S = 2.0  # how long the start of a function waits for room for its snapshot
log = logging.getLogger("holdfast.sdk")


def after_step(session: Session, gate: Gate, now_ns: int) -> None:
    """What follows a completed step: news to the agent, and the snapshot when one is due."""
    first = session._first_of_generation
    if first is not None:
        session._first_of_generation = None
        _started(session, gate, first, now_ns)
    session._equality.at_boundary()
    if session._generators is not None:
        session._generators.at_boundary()
    if first is not None:
        ask_for_room(session, gate)
    if session._guard.carries:
        _postpone(session)
        return
    every = session._environment.snapshot_every
    if session._asking.due:
        session._progress.show("snapshot")
        session._asking.step_ended()
        session._progress.show("between")
    elif _is_due(session, every):
        session._progress.show("snapshot")
        reason = snapshot(session, gate)
        if reason:
            skipped(session, gate, reason)
        session._progress.show("between")
    session._owed = 0


def _is_due(session: Session, every: int) -> bool:
    """Whether a snapshot is, by the number of the step or because it was put off. That of a function's last
    step is taken with its value."""
    due = bool(every) and (session._owed > 0 or session._completed % every == 0)
    return due and bool(session._tracked.objects) and not _ends(session)


def _postpone(session: Session) -> None:
    """Gradients are carried over this boundary: what is due waits for one that carries none. Told once."""
    every = session._environment.snapshot_every
    if every and session._completed % every == 0:
        session._owed += 1
        if session._owed == _OWED_TOLD:
            log.warning(
                "no snapshot for %d steps: gradients are left for the next step at each boundary. If they "
                "are not meant to count there, clear them with zero_grad() when the optimizer has stepped",
                every * (_OWED_TOLD - 1),
            )


def _ends(session: Session) -> bool:
    """Whether this was the last step of its loop: the function's end keeps its state, with its value."""
    return session._completed == session._last


def _started(session: Session, gate: Gate, first: tuple[float, float, float], now_ns: int) -> None:
    form_s, restore_s, begun = first
    if session._board is not None:
        session._board.resumed_ns = now_ns
        session._board.resumed_generation = session._generation
    inexact, session._inexact = "; ".join(session._inexact), []
    gate.say(
        {
            "op": "started",
            "generation": session._generation,
            "step": session._completed,
            "form_s": form_s,
            "restore_s": restore_s,
            "first_step_s": now_ns / 1e9 - begun,
            "inexact": inexact,
        }
    )
    lines.over(gate, session._generation, session._completed)


def ask_early(session: Session, gate: Gate) -> None:
    """The state is in place: ask for room if it is complete, and say at once which part of it this rank holds
    where others hold other parts, even if the optimizer has no state yet."""
    if session._completed or session._shard != shard_ids.WHOLE:
        ask_for_room(session, gate)


def ask_for_room(session: Session, gate: Gate, *, forced: bool = False) -> None:
    """Say how large a snapshot is, and of which shard, once the optimizer has its state. `forced`: even when
    no snapshots are taken by themselves."""
    known = session._snapshots.path and session._said_shard == session._shard
    wanted = forced or session._environment.snapshot_every
    if wanted and session._tracked.objects and not known:
        _say_tracked(session, gate)


def _say_tracked(session: Session, gate: Gate) -> None:
    try:
        needs = session._snapshots.needs()
    except StateError as error:
        log.warning("no room is asked for snapshots: %s", error)
        return
    session._said_shard = session._shard
    gate.say({"op": "tracked", "bytes": needs, "shard": session._shard}, keep=True)


def insist(session: Session, gate: Gate, reason: str, wait_s: float) -> str:
    """Try for a snapshot again while it is only the room that is missing: "" or why there is none."""
    deadline = time.monotonic() + wait_s
    while reason and time.monotonic() < deadline and not gate.interrupted(session._generation):
        if not any(word in reason for word in _PASSING):
            break
        gate.wait(lambda orders: orders.interrupted >= session._generation, _POLL_S)
        reason = snapshot(session, gate)
    return reason


_PASSING = ("no shared memory yet", "not ready on all ranks", "still being read", "outgrown")


def last(session: Session, gate: Gate) -> str:
    """See that there is one of the final state: "" or why there is none."""
    if not session._environment.snapshot_every or not session._tracked.objects:
        return ""
    made = session._made == (session._completed, session._generation)
    return "" if made else snapshot(session, gate)


def first(session: Session, gate: Gate) -> None:
    """See that there is one of what a function after the first begins with: no process could go back to the
    function before it."""
    if session._environment.snapshot_every and session._tracked.objects:
        reason = insist(session, gate, snapshot(session, gate), _FIRST_WAIT_S)
        if reason:
            skipped(session, gate, reason)


def skip(session: Session, windows: tuple[tuple[int, int], ...]) -> None:
    """These batches are left out from now on; the ledger knows it."""
    if session._ledger is not None:
        for first, end in windows:
            if (first, end) not in session._skips:
                session._ledger.skipped(first, end, session._generation, session._rank)
    session._skips = windows


def snapshot(session: Session, gate: Gate) -> str:
    """Take one now: "" or why not. An arena that fails costs a snapshot, never the training."""
    if session._numbers.noticed:
        return "the numbers are at fault: nothing of this state is kept"
    reason = _attach(session, gate)
    if reason:
        return reason
    orders, begun = gate.orders, time.perf_counter()
    try:
        outcome = session._snapshots.write(
            session._completed, session._generation, orders.released_step, orders.void_step
        )
    except (ArenaError, StateError) as error:
        return str(error)
    stall_s = time.perf_counter() - begun
    if isinstance(outcome, str):
        if "outgrown" in outcome:
            _say_tracked(session, gate)
        return outcome
    session._made = (session._completed, session._generation)
    gate.say(
        {
            "op": "snapshot",
            "generation": session._generation,
            "step": session._completed,
            "slot": outcome,
            "stall_s": stall_s,
        },
        keep=True,
    )
    return ""


def _attach(session: Session, gate: Gate) -> str:
    """Use the arena that the agent named last: "" or why there is none."""
    arena = gate.orders.arena
    if arena is None:
        return "no shared memory yet"
    if arena["op"] == "arena_failed":
        return str(arena.get("reason", "the agent has no shared memory"))
    if gate.arena_taken is not arena:
        try:
            session._snapshots.attach(arena["path"])
        except ArenaError as error:
            return str(error)
        gate.arena_taken = arena
    return ""


def skipped(session: Session, gate: Gate, reason: str) -> None:
    """Tell the agent why there is no snapshot of this step."""
    gate.say(
        {
            "op": "snapshot_skipped",
            "generation": session._generation,
            "step": session._completed,
            "reason": reason[:500],
        }
    )
