"""The sessions of this process: one at a time has an agent, and none of them in a forked child."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from holdfast.session import Session

_living: weakref.WeakSet[Session] = weakref.WeakSet()


def add(session: Session) -> None:
    """Know this one from now on."""
    _living.add(session)


def living() -> list[Session]:
    """All of them that have not gone yet."""
    return list(_living)


def make_way(session: Session) -> None:
    """The script makes another session that has an agent: those before it are over. Raises SessionError."""
    for other in list(_living):
        if other is session or other._gate is None or other._closed:
            continue
        if other._inside:
            raise SessionError(
                "Session: another one is in its elastic function: one session at a time; use that one, or "
                "make this one when its function has returned"
            )
        other._closed = "the script has made another Session since: one at a time"
        other.close()


def _after_fork_in_child() -> None:
    """In a DataLoader's worker: the agent and the peers are the parent's."""
    for session in list(_living):
        session._groups.neutralise()
        if session._gate is not None:
            session._gate.neutralise()


os.register_at_fork(after_in_child=_after_fork_in_child)
