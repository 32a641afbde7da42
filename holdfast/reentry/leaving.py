"""What a rank keeps of a generation that it leaves, and what it lets go of."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING

from holdfast.errors import StateError
from holdfast.snapshots import keeping

if TYPE_CHECKING:
    from holdfast.reentry.agent_client import Gate
    from holdfast.session import Session
    from holdfast.snapshots.snapshot import Kept

_ROOM_WAIT_S = 2.0  # how long the end of a generation waits for room for its snapshot
log = logging.getLogger("holdfast.sdk")


def preserve(session: Session, gate: Gate) -> None:
    """The places are to change: a snapshot of just this state, before anything goes."""
    if session._made == (session._completed, session._generation):
        return
    reason = keeping.insist(session, gate, keeping.snapshot(session, gate), _ROOM_WAIT_S)
    if reason:
        keeping.skipped(session, gate, reason)


def stow(session: Session) -> None:
    """What was tracked in the function goes with it; its state is kept if it is clean."""
    kept = session._kept
    if session._held < 0 or kept is None or kept.step != session._held:
        session._kept = None
        if session._held >= 0:
            session._kept = _keep(session)
    session._old += [weakref.ref(module) for module in session._tracked.modules]
    session._pending = None
    session._tracked.objects.clear()
    session._guard.disarm()


def _keep(session: Session) -> Kept | None:
    try:
        return session._snapshots.keep(session._held)
    except StateError as error:  # what the user's state_dict hides is held no more
        log.warning("the state of step %d is given up: %r", session._held, error)
        session._held = -1
        return None


def let_go(session: Session) -> None:
    """Free the models of the generation before: they hang in cycles with their groups."""
    if any(reference() is not None for reference in session._old):
        gc.collect()
    session._old.clear()
