"""Define what a rank says of a comparison of replicas: who holds what, who differs, what is not covered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from holdfast.ipc.messages.fields import BadMessage, Flag, Integer, Record

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

RANKS_MAX, TEXTS_MAX = 4096, 16
"""Ranks that a message names at most, and texts of each kind."""
_TEXT_MAX = 200


def _ranks(message: Message, key: str) -> tuple[int, ...]:
    ranks = message.get(key, [])
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank < 1 << 31 for rank in ranks):
        raise BadMessage(f"replicas: {key} must be a list of ranks")
    return tuple(ranks[:RANKS_MAX])


def _texts(message: Message, key: str) -> tuple[str, ...]:
    texts = message.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise BadMessage(f"replicas: {key} must be a list of texts")
    return tuple(each[:_TEXT_MAX] for each in texts[:TEXTS_MAX])


Ranks = Annotated[tuple[int, ...], _ranks]
Texts = Annotated[tuple[str, ...], _texts]


@dataclass(frozen=True, slots=True)
class ReplicasCompared(Record):
    """Replicas were compared after `step` steps; `agreed_step`: when they last held the same.

    `ranks`: those that hold what differs; (): all agree. `odd`: those of them to blame; (): nobody can say.
    `tensors`: what differs, and `more` that are not named; `digests`: of the first, as `rank N: digest`.
    `buffers`: only buffers differ, which the script may change on one rank alone. `uncovered`: state of this
    rank of which nobody holds a replica."""

    op = "replicas"
    generation: Integer
    step: Integer
    agreed_step: Integer
    ranks: Ranks = ()
    odd: Ranks = ()
    tensors: Texts = ()
    more: Integer = 0
    digests: Texts = ()
    buffers: Flag = False
    uncovered: Texts = ()
