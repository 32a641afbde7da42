"""Prove that the collectives of the current step have succeeded, whatever the script made of their
exceptions.

Judged from the group itself: one that is broken carries nothing any more. When it is found broken, only those
collectives have succeeded that had ended when it was last seen whole; if the script has begun another one
since, the step is not counted. Interrupts, and the order in which they come, play no part in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from holdfast.errors import CollectiveFailed

if TYPE_CHECKING:
    from holdfast.rank_state import RankState

Counts = tuple[int, ...]


class CollectiveProof:
    """Judges the collectives of one rank's steps. Without an agent it does nothing: nobody would re-form the
    group."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._proven: Counts | None = None  # collectives begun, by group, when all had succeeded
        self._generation = 0
        self._lost: frozenset[str] = frozenset()  # groups of older generations, whose last one never ended

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
        """Raise CollectiveFailed when a collective of the step may have failed: `what` must not go on."""
        state = self._state
        if state.agent is None or not state.entry.inside:
            return
        if not self._prove() and not _left_in_order(state):
            raise CollectiveFailed(
                f"connection closed: the group broke in step {state.completed}, and not every collective "
                f"of it is known to have succeeded: {what} is not counted"
            )

    def _prove(self) -> bool:
        """Whether nothing is known to have failed. The group is looked at last: what had ended by then, on
        a group that is whole now, has succeeded."""
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
    """How many collectives each group of now has begun."""
    counts = []
    for group in list(distributed_c10d._world.pg_map):
        counted: Any = group  # torch's annotations lack it
        try:
            counts.append(int(counted._get_sequence_number_for_group()))
        except RuntimeError:  # a backend that does not count
            counts.append(-1)
    return tuple(counts)


def _unended() -> set[str]:
    """The groups, by torch's flight recorder, whose newest collective has not ended; "" when it is off."""
    recorder: Any = c10d  # torch's annotations lack it
    shown = json.loads(recorder._dump_fr_trace_json(False, True)).get("pg_status") or {}
    late = {
        name
        for name, at in shown.items()
        if int(at["last_enqueued_collective"]) > int(at["last_completed_collective"])
    }
    return late or ({""} if not shown and any(_begun()) else set())


def _left_in_order(state: RankState) -> bool:
    """Whether the generation ends at a step's boundary: then peers go when they have completed the step."""
    agent = state.agent
    assert agent is not None
    return agent.halted(state.generation) and not agent.interrupted(state.generation)


def _forget_half_steps(state: RankState) -> None:
    """A scaler that was left between its unscaling and its update would not unscale in the step's retry."""
    for thing in state.tracked.small.values():
        if isinstance(thing, torch.amp.GradScaler):
            thing._per_optimizer_states.clear()
