"""Keep what a rank needs of a generation that it leaves, and let go of the rest."""

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
    from holdfast.snapshots.snapshot import Kept

_ROOM_WAIT_S = 2.0  # how long the end of a generation waits for room for its snapshot
log = logging.getLogger("holdfast.sdk")


def preserve(state: RankState, agent: AgentClient) -> None:
    """Take a snapshot of just this state before anything goes: ranks are about to move."""
    if state.newest_snapshot == (state.completed, state.generation):
        return
    skip = snapshotting.insist(state, agent, snapshotting.snapshot(state, agent), _ROOM_WAIT_S)
    if skip is not None:
        snapshotting.report(state, agent, skip)


def stow(state: RankState) -> None:
    """Keep the state of what was tracked in the function if it is clean, and let go of the objects."""
    kept = state.entry.kept
    if state.clean.step < 0 or kept is None or kept.step != state.clean.step:
        state.entry.kept = None
        if state.clean.step >= 0:
            state.entry.kept = _keep(state)
    state.entry.old_modules += [weakref.ref(module) for module in state.tracked.modules]
    state.entry.pending = None
    state.tracked.objects.clear()
    state.guard.disarm()


def _keep(state: RankState) -> Kept | None:
    try:
        return state.snapshots.keep(state.clean.step)
    except StateError as error:  # what the user's state_dict hides is held no more
        log.warning("the state of step %d is given up: %r", state.clean.step, error)
        state.clean.step = -1
        return None


def let_go(state: RankState) -> None:
    """Free the models of the generation before: they hang in cycles with their groups."""
    if any(reference() is not None for reference in state.entry.old_modules):
        gc.collect()
    state.entry.old_modules.clear()
