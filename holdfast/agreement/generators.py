"""Share the random generators of a session that seeds nothing.

At each snapshot boundary every rank sends its generator states to all, so that the snapshot of any rank
contains those of a lost one. Between boundaries no other rank has them."""

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


def record_lost(state: RankState, generators: Generators | None, seed: int | None) -> None:
    """Record this rank's random numbers as lost if its state came from another rank and no step is seeded.

    Not if the session itself seeds nothing: then it has `generators`, which keep the generator states."""
    if seed is None and generators is None and state.clean.received:
        state.inexact.append(
            f"random numbers of rank {state.rank} (steps(seed=None) leaves them to the script, and only "
            "Session(seed=None) keeps them)"
        )
        state.clean.received = False


class Generators:
    """The generators of this rank, and those of its peers at the newest boundary."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._step = -1
        self._ranks: list[Any] = []  # of all ranks after `_step`; []: not known

    def found(self) -> dict[str, Any]:
        """The data for a snapshot: this rank's generators now, and all ranks' if known for this step."""
        state = self._state
        if state.tracked.random is not None:  # they came with the state just now and are passed on unchanged
            come: dict[str, Any] = typed.decode(state.tracked.random)
            return come
        own = randomness.capture(state.rank)
        return {**own, "ranks": self._ranks} if self._step == state.completed else own

    def at_boundary(self) -> None:
        """Learn the others' generators if a snapshot is due; all ranks have completed this step."""
        state = self._state
        if not state.spacing.due(state.completed) or not dist.is_initialized():
            return
        device = carrier(state.backend, state.device)
        received = transfer.exchange(typed.encode(randomness.capture(state.rank)), device)
        self._ranks, self._step = [typed.decode(data) for data in received], state.completed

    def restore(self, random: Any, step: int) -> None:
        """Apply this rank's generators out of those that came with the state of `step`, or note them as lost.

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
            raise RestoreError(f"the random number generators cannot be restored: {error!r}") from error
