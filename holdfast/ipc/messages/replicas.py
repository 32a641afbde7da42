"""Define what a rank says of a comparison of replicas: who holds what, who differs, what is not covered."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from holdfast.ipc.messages.fields import BadMessage, Flag, Integer, Record, integer, text

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

RANKS_MAX, TEXTS_MAX = 4096, 16
"""Ranks that a message names at most, and texts of each kind."""
RUNNING, DONE = "running", "done"
"""Codes of `replay`: it runs, it has ended. The others say why there is none."""
AGREE, DIFFER = "agree", "differ"
"""Codes of `gradients`; "": they were not compared."""
PASSES_MAX, ODD_MAX = 8, 16
"""Runs of a replay, and ranks that held something else after one of them."""
_TEXT_MAX, _CODE_MAX = 200, 40


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


def _code(message: Message, key: str) -> str:
    return text(message, key, "")[:_CODE_MAX]


@dataclass(frozen=True, slots=True)
class Pass:
    """Which state all ranks held after one run of the steps: most of them `common`, a digest; `ranks` each
    another, of `digests`. What the kinds are, and what follows from them, the coordinator knows."""

    kind: str
    shift: int
    common: str
    ranks: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()

    @classmethod
    def decode(cls, entry: object) -> Self:
        """Read one from a list. Raises BadMessage."""
        if not isinstance(entry, dict):
            raise BadMessage("replicas: each pass must be an object")
        ranks, digests = _ranks(entry, "ranks"), _texts(entry, "digests")
        if len(ranks) != len(digests) or len(ranks) > ODD_MAX:
            raise BadMessage(f"replicas: a pass names {len(ranks)} ranks and {len(digests)} digests")
        return cls(
            _code(entry, "kind"), max(integer(entry, "shift"), 0), _code(entry, "common"), ranks, digests
        )


def _passes(message: Message, key: str) -> tuple[Pass, ...]:
    passes = message.get(key, [])
    if not isinstance(passes, list) or len(passes) > PASSES_MAX:
        raise BadMessage(f"replicas: {key} must be a list of at most {PASSES_MAX}")
    return tuple(Pass.decode(entry) for entry in passes)


Code = Annotated[str, _code]
Passes = Annotated[tuple[Pass, ...], _passes]


@dataclass(frozen=True, slots=True)
class ReplicasCompared(Record):
    """Replicas were compared after `step` steps; `agreed_step`: when they last held the same.

    `ranks`: those that hold what differs; (): all agree. `odd`: those of them to blame; (): nobody can say.
    `tensors`: what differs, and `more` that are not named; `digests`: of the first, as `rank N: digest`.
    `buffers`: parameters and all other state are equal: only buffers differ, which the script may change on
    one rank alone, or gradients. `gradients`: how those of the step compare after they were reduced, a code.
    `uncovered`: state of this rank of which nobody holds a replica. `replay`: a code: the steps are being
    replayed, that is done, or why they are not; `passes`: what it gave."""

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
    replay: Code = ""
    passes: Passes = ()
    gradients: Code = ""

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {**Record.encode(self), "passes": [dataclasses.asdict(each) for each in self.passes]}
