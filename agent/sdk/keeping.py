"""What a session does besides training: news to its agent, and snapshots when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.checkpoint.shm import ArenaError

if TYPE_CHECKING:
    from agent.sdk.gate import Gate
    from agent.sdk.session import Session


def after_step(session: Session, gate: Gate, now_ns: int) -> None:
    """What follows a completed step: news to the agent, and the snapshot when one is due."""
    first = session._first_of_generation
    if first is not None:
        session._first_of_generation = None
        _started(session, gate, first, now_ns)
    every = session._environment.snapshot_every
    if every and session._completed % every == 0 and session._tracked.objects:
        session._show("snapshot")
        reason = snapshot(session, gate)
        if reason:
            skipped(session, gate, reason)
        session._show("between")


def _started(session: Session, gate: Gate, first: tuple[float, float, float], now_ns: int) -> None:
    form_s, restore_s, begun = first
    if session._board is not None:
        session._board.resumed_ns = now_ns
        session._board.resumed_generation = session._generation
    gate.say(
        {
            "op": "started",
            "generation": session._generation,
            "step": session._completed,
            "form_s": form_s,
            "restore_s": restore_s,
            "first_step_s": now_ns / 1e9 - begun,
        }
    )
    ask_for_room(session, gate)


def ask_for_room(session: Session, gate: Gate) -> None:
    """Say how large a snapshot is, and of which shard, once the optimizer has its state."""
    known = session._snapshots.path and session._said_shard == session._shard
    if session._environment.snapshot_every and session._tracked.objects and not known:
        _say_tracked(session, gate)


def _say_tracked(session: Session, gate: Gate) -> None:
    session._said_shard = session._shard
    needs = session._snapshots.needs()
    gate.say({"op": "tracked", "bytes": needs, "shard": session._shard}, keep=True)


def last(session: Session, gate: Gate) -> str:
    """See that there is one of the final state: "" or why there is none."""
    if not session._environment.snapshot_every or not session._tracked.objects:
        return ""
    made = session._made == (session._completed, session._generation)
    return "" if made else snapshot(session, gate)


def snapshot(session: Session, gate: Gate) -> str:
    """Take one now: "" or why not. An arena that fails costs a snapshot, never the training."""
    reason = _attach(session, gate)
    if reason:
        return reason
    orders = gate.orders
    try:
        outcome = session._snapshots.write(
            session._completed, session._generation, orders.released_step, orders.void_step
        )
    except ArenaError as error:
        return str(error)
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
