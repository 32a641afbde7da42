"""Prove that the collectives of the current step have succeeded, even if the script caught an exception.

The proof is the state of the groups: once a group is broken, no collective can succeed on it. So as long as
all groups are whole, every collective that has ended has succeeded. If a group is found broken, only those
collectives are known to have succeeded that had ended when the groups were last seen whole. If the script has
begun another one since, the step does not count. The proof does not depend on when an interrupt arrives."""

from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import distributed_c10d

from holdfast.errors import CollectiveFailed
from holdfast.groups import torch_recorders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.rank_state import RankState

Counts = tuple[int, ...]


class CollectiveProof:
    """Judges the collectives of one rank's steps. Without an agent it does nothing: nobody would re-form the
    group."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        # Collectives begun, by group, when all were last known to have succeeded.
        self._proven: Counts | None = None
        self._generation = 0
        # Groups of older generations whose last collective never ended.
        self._lost: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Begin a step."""
        state = self._state
        if state.agent is None:
            return
        if self._generation != state.generation:
            self._generation, self._proven = state.generation, None
            self._lost = frozenset(_unended())
            _forget_half_steps(state)
        self._prove()

    def check(self, what: str) -> None:
        """Raise CollectiveFailed, to keep `what` from going on, if a collective may have failed."""
        state = self._state
        if state.agent is None or not state.entry.inside:
            return
        if not self._prove() and not _left_in_order(state):
            raise CollectiveFailed(
                f"connection closed: the group broke in step {state.completed}, and some of its "
                f"collectives may have failed: {what} is not counted"
            )

    def _prove(self) -> bool:
        """Whether all collectives have succeeded so far; also true while the newest ones are still running.

        Whether the groups are whole is checked last: then collectives that had ended before that have
        succeeded."""
        begun = _begun()
        if begun == self._proven:
            return True
        ended = not _unended() - self._lost
        if self._state.groups.broken:
            return False
        if ended:
            self._proven = begun
        return True


def _begun() -> Counts:
    """How many collectives each present group has begun."""
    counts = []
    for group in list(distributed_c10d._world.pg_map):
        counted: Any = group  # torch's annotations lack it
        try:
            counts.append(int(counted._get_sequence_number_for_group()))
        except RuntimeError:  # a backend that does not count
            counts.append(-1)
    return tuple(counts)


def _unended() -> set[str]:
    """The groups whose newest collective has not ended, by torch's flight recorders; {""} if they are off."""
    late = unended_in(torch_recorders.statuses())
    return ({""} if any(_begun()) else set()) if late is None else late


def unended_in(texts: Sequence[bytes]) -> set[str] | None:
    """The groups whose newest collective has not ended, by what these recorders tell; None: of no group.

    A build with CUDA has a recorder for NCCL's groups and one for all others: a group is in one of them."""
    ended = list(map(plainly_ended, texts))
    if any(ended) and all(map(operator.or_, ended, map(empty, texts))):
        return set()
    shown = [json.loads(text).get("pg_status") or {} for text in texts]
    if not any(shown):
        return None
    return {
        f"{recorder}/{name}"
        for recorder, groups in enumerate(shown)
        for name, at in groups.items()
        if int(at["last_enqueued_collective"]) > int(at["last_completed_collective"])
    }


def plainly_ended(text: bytes) -> bool:
    """Whether the newest collective of each group has ended, as far as a look at the text tells; if False, it
    has to be parsed.

    A step has driven json's code out of the CPU's caches, so parsing takes thirty times as long as it would
    otherwise."""
    rows = text.partition(b'"pg_status":')[2].split(_ENDED)[1:]
    return bool(rows) and all(map(_same_number, rows))


def empty(text: bytes) -> bool:
    """Whether a recorder knows of no group."""
    return b'"last_enqueued_collective"' not in text


_ENDED, _BEGUN = b'"last_completed_collective":"', b'","last_enqueued_collective":"'


def _same_number(row: bytes) -> bool:
    """`row`: from the number of the last collective that has ended on."""
    ended, found, rest = row.partition(_BEGUN)
    return bool(found) and rest.startswith(ended + b'"')


def _left_in_order(state: RankState) -> bool:
    """Whether the generation is to end at a step boundary.

    Then a peer that has completed the step may leave the groups, which breaks them without any failure."""
    agent = state.agent
    assert agent is not None
    return agent.halted(state.generation) and not agent.interrupted(state.generation)


def _forget_half_steps(state: RankState) -> None:
    """Clear GradScalers left between unscaling and update: they would not unscale in the step's retry."""
    for thing in state.tracked.small.values():
        if isinstance(thing, torch.amp.GradScaler) and thing.is_enabled():
            thing._per_optimizer_states.clear()
