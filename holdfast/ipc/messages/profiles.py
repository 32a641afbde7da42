"""Define what a rank says of a profile that its agent has asked for by `agent.Profile`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from holdfast.ipc.messages.fields import (
    AsText,
    AsTextOrEmpty,
    BadMessage,
    Flag,
    Integer,
    Number,
    Record,
    as_text,
    integer,
    number,
)

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

_OPERATORS_MAX, _OPERATOR_MAX = 64, 200


def _operators(message: Message, key: str) -> tuple[Operator, ...]:
    operators = message.get(key)
    if not isinstance(operators, list):
        raise BadMessage("profiled: operators must be a list")
    return tuple(Operator.decode(entry) for entry in operators[:_OPERATORS_MAX])


@dataclass(frozen=True, slots=True)
class ProfileTaken(Record):
    """Answers Profile at once: this SDK knows the order, and has noted it. Sent again with `recorded` when
    the steps are over, and the trace is being written."""

    op = "profile_taken"
    request: AsText
    recorded: Flag = False


@dataclass(frozen=True, slots=True)
class Operator:
    """The time that one operator took itself, without what it called, over all steps of a profile."""

    name: str
    calls: int
    cpu_s: float
    device_s: float

    @classmethod
    def decode(cls, entry: object) -> Self:
        """One entry of Profiled. Raises BadMessage."""
        if not isinstance(entry, dict):
            raise BadMessage("profiled: an operator is not an object")
        named = {"op": "profiled", **entry}
        return cls(
            as_text(named, "name")[:_OPERATOR_MAX],
            integer(named, "calls"),
            number(named, "cpu_s"),
            number(named, "device_s"),
        )


@dataclass(frozen=True, slots=True)
class Profiled(Record):
    """The end of a profile. `reason`: why there is no trace; "": it is at `path`."""

    op = "profiled"
    request: AsText
    generation: Integer
    reason: AsTextOrEmpty = ""
    path: AsTextOrEmpty = ""
    bytes: Integer = 0
    first_step: Integer = 0
    steps: Integer = 0
    cpu_s: Number = 0.0
    device_s: Number = 0.0
    operators: Annotated[tuple[Operator, ...], _operators] = ()
    no_table: AsTextOrEmpty = ""

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {**Record.encode(self), "operators": [dataclasses.asdict(each) for each in self.operators]}
