"""Take snapshots of this rank's state, and ask the agent for the room they need.

A snapshot that cannot be made is skipped with a reason, which is reported; it never ends the training."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from holdfast.errors import StateError
from holdfast.ipc.messages.agent import ArenaFailed
from holdfast.ipc.messages.rank import Snapshot, SnapshotSkipped, Tracked
from holdfast.ipc.shm import ArenaError
from holdfast.ipc.skips import NO_ARENA, Skip, SkipKind
from holdfast.snapshots.letting_go import Told
from holdfast.state import shard_ids

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.rank_state import RankState

_POLL_S = 0.05
_FIRST_WAIT_S = 2.0  # seconds that the start of a function waits for room for its snapshot
_LONG_WAIT = 0.1
"""Of a lazy copy: more than this share that training waits for is logged, once."""
log = logging.getLogger("holdfast.sdk")


def ask_early(state: RankState, agent: AgentClient) -> None:
    """Ask for room as soon as the state is restored, if it is complete.

    If ranks hold different parts, report this rank's shard id at once, even if the optimizer has no state
    yet. A process that joins others, which hold all that it holds, asks at its first boundary: now they wait
    for it."""
    whole = state.shard_id == shard_ids.WHOLE
    if (state.completed and state.entry.first < 0) or not whole:
        ask_for_room(state, agent)


def ask_for_room(state: RankState, agent: AgentClient, *, forced: bool = False) -> None:
    """Report how many bytes a snapshot takes, and of which shard, once the optimizer has its state.

    `forced`: also if no snapshots are taken regularly."""
    known = state.snapshots.path and state.announced_shard == state.shard_id
    wanted = forced or state.environment.snapshot_every
    if wanted and state.tracked.objects and not known:
        _send_tracked(state, agent)


def _send_tracked(state: RankState, agent: AgentClient) -> None:
    try:
        needs = state.snapshots.needs()
    except StateError as error:
        log.warning("no snapshots are taken, the tracked state cannot be read: %s", error)
        return
    state.announced_shard = state.shard_id
    agent.send(Tracked(needs, state.shard_id), keep=True)


def insist(state: RankState, agent: AgentClient, skip: Skip | None, wait_s: float) -> Skip | None:
    """Retry a snapshot for `wait_s` seconds while only room is missing. Returns None, or why there is
    none."""
    deadline = time.monotonic() + wait_s
    while skip is not None and skip.passing and time.monotonic() < deadline:
        if agent.interrupted(state.generation):
            break
        agent.wait(lambda orders: orders.interrupted >= state.generation, _POLL_S)
        skip = snapshot(state, agent)
    return skip


def last(state: RankState, agent: AgentClient) -> Skip | None:
    """Ensure a snapshot of the final state. Returns None, or why there is none."""
    if not state.environment.snapshot_every or not state.tracked.objects:
        return None
    settle(state)
    made = state.newest_snapshot == (state.completed, state.generation)
    return None if made else snapshot(state, agent)


def first(state: RankState, agent: AgentClient) -> None:
    """Ensure a snapshot of the state that a later function begins with.

    No process can return to the function before it, so its state could not be computed again."""
    if state.environment.snapshot_every and state.tracked.objects:
        skip = insist(state, agent, snapshot(state, agent), _FIRST_WAIT_S)
        if skip is not None:
            report(state, agent, skip)


def snapshot(
    state: RankState, agent: AgentClient, *, agreed: bool = False, lazily: bool = False
) -> Skip | None:
    """Take a snapshot now. Returns None, or why there is none: a failing arena never ends the training.

    `agreed`: all ranks take this one, and know which of them the coordinator is told of; else it is told of
    this one. `lazily`: it may be copied beside the next step, and is announced once `settle` finds it
    whole."""
    settle(state)
    if not agreed:
        state.letting_go.force(state.completed)
    state.judge()
    if state.numeric_anomaly:
        return Skip(SkipKind.ANOMALY, "a numeric anomaly was found: no snapshot is taken of this state")
    skip = _attach(state, agent)
    if skip is not None:
        return skip
    begun = time.perf_counter()
    slots = state.snapshots.slots(state.generation)
    told = state.letting_go.limits(slots, Told.by(agent.orders), time.monotonic())
    try:
        outcome = state.snapshots.write(
            state.completed, state.generation, told.released, told.void, lazily=lazily
        )
    except (ArenaError, StateError) as error:
        return Skip(SkipKind.REFUSED, str(error))
    stall_s = time.perf_counter() - begun
    if isinstance(outcome, Skip):
        if outcome.kind is SkipKind.OUTGROWN:
            _send_tracked(state, agent)
        return outcome
    if state.snapshots.under_way:
        state.lazy_stall_s = stall_s
        return None
    _announce(state, agent, Snapshot(state.generation, state.completed, outcome, stall_s))
    return None


def _announce(state: RankState, agent: AgentClient, made: Snapshot) -> None:
    """Report a snapshot, unless the ranks keep it to themselves (`LettingGo`)."""
    state.newest_snapshot = (made.step, made.generation)
    state.spacing.snapshot_took(made.stall_s)
    if state.letting_go.is_offered(made.step):
        state.letting_go.offered(made.step, Told.by(agent.orders), time.monotonic())
        spacing, offered = state.spacing.take_news(), state.letting_go.on
        agent.send(dataclasses.replace(made, spacing=spacing, offered=offered), keep=True)


def settle(state: RankState) -> None:
    """Wait for a snapshot that is being copied beside training, and announce it if it is whole.

    Called before anything writes tracked tensors, looks for the newest snapshot, or leaves a generation: an
    optimizer's step, the end of a step, the next snapshot, a break. Never raises for a failing arena."""
    agent = state.agent
    if agent is None or not state.snapshots.under_way:
        return
    try:
        end = state.snapshots.settle()
    except ArenaError as error:
        log.warning("a snapshot that was copied beside training is lost: %s", error)
        return
    assert end is not None
    if end.moved:
        log.warning(
            "step %d: changed outside of an optimizer's step, so copied at each boundary from now on: %s",
            end.step,
            ", ".join(end.moved),
        )
    if not end.whole:
        reason = f"changed while it was copied: {', '.join(end.moved)}"
        agent.send(SnapshotSkipped(end.generation, end.step, reason[:500]))
        return
    if end.waited_s > end.copy_s * _LONG_WAIT and not state.lazy_waits:
        state.lazy_waits = True
        log.warning(
            "step %d waited %.3f s for its snapshot's copy of %.3f s: forward and backward are shorter than "
            "that; a larger --snapshot-every makes it wait less often (said once)",
            end.step,
            end.waited_s,
            end.copy_s,
        )
    stall_s = state.lazy_stall_s + end.waited_s
    _announce(state, agent, Snapshot(end.generation, end.step, end.index, stall_s))


def _attach(state: RankState, agent: AgentClient) -> Skip | None:
    """Use the arena that the agent named last. Returns None, or why there is none."""
    arena = agent.orders.arena
    if arena is None:
        return NO_ARENA
    if isinstance(arena, ArenaFailed):
        return Skip(SkipKind.REFUSED, arena.reason)
    if agent.arena_taken is not arena:
        try:
            state.snapshots.attach(arena.path)
        except ArenaError as error:
            return Skip(SkipKind.REFUSED, str(error))
        agent.arena_taken = arena
    return None


def report(state: RankState, agent: AgentClient, skip: Skip) -> None:
    """Report why there is no snapshot of this step."""
    agent.send(SnapshotSkipped(state.generation, state.completed, skip.reason[:500]))
