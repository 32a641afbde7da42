"""Define what a rank says of its gradients and its loss, as `session.watch` measures them.

Numbers are finite: what is NaN or Inf is said by counts (`nans`, `infs`) or in words (`loss_state`)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from holdfast.ipc.messages.fields import (
    AsTextOrEmpty,
    BadMessage,
    Flag,
    Integer,
    Number,
    Record,
    as_text,
    integer,
    number,
    text,
)

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

ROWS_MAX = 32
LOSS_STATES = ("known", "unknown", "nan", "inf")
TRACES = ("", "module", "weights", "inputs", "loss", "backward", "unknown")
"""Where the first number came from that is not finite: a module of the forward pass, parameters that were so
before, the data, what follows the model, the backward pass of a parameter, or that is not known. "": there is
no such number."""
_NAME_MAX = 200


def _rows(message: Message, key: str) -> tuple[GradientRow, ...]:
    rows = message.get(key)
    if not isinstance(rows, list):
        raise BadMessage("gradients: rows must be a list")
    return tuple(GradientRow.decode(entry) for entry in rows[:ROWS_MAX])


def _loss_state(message: Message, key: str) -> str:
    return _one_of(message, key, LOSS_STATES)


def _trace(message: Message, key: str) -> str:
    return _one_of(message, key, TRACES)


def _one_of(message: Message, key: str, words: tuple[str, ...]) -> str:
    found = text(message, key)
    if found not in words:
        raise BadMessage(f"gradients: {key} {found!r:.80} must be one of {', '.join(map(repr, words))}")
    return found


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient of one parameter, or of this rank's shard of it. `norm` and the three after it: 0 where
    they are not finite. `usual`: the median of its norms before; -1: there are too few."""

    name: str
    numel: int
    norm: float
    mean: float
    deviation: float
    least: float
    most: float
    zeros: int
    nans: int
    infs: int
    usual: float

    @classmethod
    def decode(cls, entry: object) -> Self:
        """One entry of Gradients. Raises BadMessage."""
        if not isinstance(entry, dict):
            raise BadMessage("gradients: a row is not an object")
        named = {"op": "gradients", **entry}
        return cls(
            as_text(named, "name")[-_NAME_MAX:],
            integer(named, "numel"),
            number(named, "norm"),
            number(named, "mean"),
            number(named, "deviation"),
            number(named, "least"),
            number(named, "most"),
            integer(named, "zeros"),
            integer(named, "nans"),
            integer(named, "infs"),
            number(named, "usual"),
        )


@dataclass(frozen=True, slots=True)
class Gradients(Record):
    """The gradients of one step, after they were reduced. `parameters` 0: nothing was measured; it is
    only a trace, or the loss as a trainer gives it.

    `norm`: of all finite gradients together. `local_norm`: the same before they were reduced; -1: not known.
    `local_bad`: 1: this rank's own gradients were not finite before they were reduced, 0: they were; -1: not
    known. `samples`: of this rank's share; 0: not known. `clipped`: measured at the optimizer, so what the
    script does to gradients before it (clipping) counts in them. `skipped`: steps left out by this process.
    `trace`: where the first number came from that is not finite; `origin`: the module or parameter."""

    op = "gradients"
    generation: Integer
    step: Integer
    parameters: Integer = 0
    numel: Integer = 0
    norm: Number = 0.0
    local_norm: Number = -1.0
    local_bad: Integer = -1
    zeros: Integer = 0
    nans: Integer = 0
    infs: Integer = 0
    vanishing: Integer = 0
    samples: Integer = 0
    loss: Number = 0.0
    loss_state: Annotated[str, _loss_state] = "unknown"
    sharded: Flag = False
    clipped: Flag = False
    skipped: Integer = 0
    left_out: AsTextOrEmpty = ""
    trace: Annotated[str, _trace] = ""
    origin: AsTextOrEmpty = ""
    words: AsTextOrEmpty = ""
    rows: Annotated[tuple[GradientRow, ...], _rows] = ()

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {**Record.encode(self), "rows": [dataclasses.asdict(each) for each in self.rows]}
