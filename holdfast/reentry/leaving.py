"""Keep what a rank needs of a generation that it leaves, and release the rest."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING

from holdfast.errors import StateError
from holdfast.reentry import snapshotting

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.rank_state import RankState
    from holdfast.snapshots.snapshot import KeptState

_ROOM_WAIT_S = 2.0  # seconds that the end of a generation waits for room for its snapshot
log = logging.getLogger("holdfast.sdk")


def preserve(state: RankState, agent: AgentClient) -> None:
    """Take a snapshot of this very state before ranks move to other places."""
    snapshotting.settle(state)
    if state.newest_snapshot == (state.completed, state.generation):
        return
    skip = snapshotting.insist(state, agent, snapshotting.snapshot(state, agent), _ROOM_WAIT_S)
    if skip is not None:
        snapshotting.report(state, agent, skip)


def stow(state: RankState) -> None:
    """Keep the state of objects tracked inside the function, if it is clean, and release the objects."""
    kept = state.entry.kept
    if state.clean.step < 0 or kept is None or kept.step != state.clean.step:
        state.entry.kept = None
        if state.clean.step >= 0:
            state.entry.kept = _keep(state)
    state.entry.old_modules += [weakref.ref(module) for module in state.tracked.modules]
    state.entry.pending = None
    state.tracked.objects.clear()
    state.guard.disarm()


def _keep(state: RankState) -> KeptState | None:
    try:
        return state.snapshots.keep(state.clean.step)
    except StateError as error:  # the objects are released, so a state that cannot be read is lost
        log.warning("the state of step %d is lost, it cannot be kept: %r", state.clean.step, error)
        state.clean.step = -1
        return None


def let_go(state: RankState) -> None:
    """Free the modules of the previous generation: reference cycles tie them to its groups."""
    if any(reference() is not None for reference in state.entry.old_modules):
        gc.collect()
    state.entry.old_modules.clear()
