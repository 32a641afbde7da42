"""Share the random generators of a session that seeds nothing: at each snapshot's boundary every rank sends
its states to all, so that any snapshot of that step holds those of a lost rank. Between boundaries nobody
else has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from holdfast.checkpoint.format import typed
from holdfast.errors import RestoreError
from holdfast.groups import transfer
from holdfast.groups.groups import carrier
from holdfast.state import randomness

if TYPE_CHECKING:
    from holdfast.rank_state import RankState


def tell_lost(state: RankState, generators: Generators | None, seed: int | None) -> None:
    """Note as inexact what a loop over unseeded steps loses where this rank was given a state and the session
    keeps no generators."""
    if seed is None and generators is None and state.clean.received:
        state.inexact.append(
            f"random numbers of rank {state.rank} (steps(seed=None) leaves them to the script, and only "
            "Session(seed=None) keeps them)"
        )
        state.clean.received = False


class Generators:
    """The generators of this rank, and those of its peers as of the newest boundary."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._step = -1
        self._ranks: list[Any] = []  # of all ranks, after that step

    def found(self) -> dict[str, Any]:
        """What goes into a snapshot: this rank's now, and all ranks' where they are known as of now."""
        state = self._state
        if state.tracked.random is not None:  # they have just come, and go on to others as they are
            come: dict[str, Any] = typed.decode(state.tracked.random)
            return come
        own = randomness.capture(state.rank)
        return {**own, "ranks": self._ranks} if self._step == state.completed else own

    def at_boundary(self) -> None:
        """Learn the others', when a snapshot is due: all ranks have completed this step."""
        state = self._state
        every = state.environment.snapshot_every
        if not every or state.completed % every or not dist.is_initialized():
            return
        device = carrier(state.backend, state.device)
        told = transfer.tell_all(typed.encode(randomness.capture(state.rank)), device)
        self._ranks, self._step = [typed.decode(data) for data in told], state.completed

    def restore(self, random: Any, step: int) -> None:
        """Apply this rank's own of the generators that came with the state of `step`, or note them as lost.
        Raises RestoreError."""
        state = self._state
        try:
            found = typed.decode(random)
            ranks = found.get("ranks", ())
            self._ranks, self._step = list(ranks), step if ranks else -1
            if found.get("rank") == state.rank:
                randomness.apply(found)
            elif len(ranks) == state.world_size:
                randomness.apply(ranks[state.rank])
            elif step:
                state.inexact.append(f"random numbers of rank {state.rank}")
        except (typed.TypedDataError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise RestoreError(f"the state's random generators cannot be restored: {error!r}") from error
