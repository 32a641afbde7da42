"""The random generators of a session that seeds nothing: at a snapshot's boundary every rank's states go to
all, so that any snapshot of that step has those of a lost rank. Between boundaries nobody else has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from holdfast.checkpoint.format import typed
from holdfast.errors import RestoreError
from holdfast.groups import transfer
from holdfast.groups.groups import carrier
from holdfast.state import randomness

if TYPE_CHECKING:
    from holdfast.session import Session


def tell_lost(session: Session, seed: int | None) -> None:
    """A loop whose steps are not seeded goes on with a state that was given: say what of it is lost where the
    session keeps no generators."""
    if seed is None and session._generators is None and session._given:
        session._inexact.append(
            f"random numbers of rank {session._rank} (steps(seed=None) leaves them to the script, and only "
            "Session(seed=None) keeps them)"
        )
        session._given = False


class Generators:
    """One session's generators, and those of its peers as of the newest boundary."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step = -1
        self._ranks: list[Any] = []  # of all ranks, after that step

    def found(self) -> dict[str, Any]:
        """What goes into a snapshot: this rank's now, and all ranks' where they are known as of now."""
        session = self._session
        if session._tracked.random is not None:  # they have just come, and go on to others as they are
            come: dict[str, Any] = typed.decode(session._tracked.random)
            return come
        own = randomness.capture(session._rank)
        return {**own, "ranks": self._ranks} if self._step == session._completed else own

    def at_boundary(self) -> None:
        """Learn the others', when a snapshot is due: all ranks have completed this step."""
        session = self._session
        every = session._environment.snapshot_every
        if not every or session._completed % every or not dist.is_initialized():
            return
        device = carrier(session._backend, session.device)
        told = transfer.tell_all(typed.encode(randomness.capture(session._rank)), device)
        self._ranks, self._step = [typed.decode(data) for data in told], session._completed

    def restore(self, random: Any, step: int) -> None:
        """The state of `step` has come with these: take up this rank's own, or say that they are lost. Raises
        RestoreError."""
        session = self._session
        try:
            found = typed.decode(random)
            ranks = found.get("ranks", ())
            self._ranks, self._step = list(ranks), step if ranks else -1
            if found.get("rank") == session._rank:
                randomness.apply(found)
            elif len(ranks) == session._world_size:
                randomness.apply(ranks[session._rank])
            elif step:
                session._inexact.append(f"random numbers of rank {session._rank}")
        except (typed.TypedDataError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise RestoreError(f"the state's random generators cannot be restored: {error!r}") from error
