"""Define the messages that an agent sends to its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.ipc.messages.fields import (
    AnyInteger,
    AsText,
    AsTextOrEmpty,
    BadMessage,
    Flag,
    Integer,
    Number,
    Record,
    Text,
    as_is,
    as_text,
    by_op,
    decode,
    if_there,
)

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

_INCIDENT_MAX = 90


def _beat_interval(message: Message, key: str) -> float:
    interval_s = message.get(key, 1.0)
    if type(interval_s) not in (int, float) or not 0.01 <= interval_s <= 3600:
        raise BadMessage(f"{key} cannot be {interval_s!r:.80}")
    return float(interval_s)


def _incident(message: Message, key: str) -> str:
    return as_text(message, key, "")[:_INCIDENT_MAX]


Incident = Annotated[str, _incident]
"""The name of the incident that a message is part of, for log lines; "": none."""


@dataclass(frozen=True, slots=True)
class Welcome(Record):
    """Answers Hello: the rank is admitted."""

    op = "welcome"
    version: AnyInteger
    beat_interval_s: Annotated[float, _beat_interval]
    process_timeout_s: Annotated[float, as_is]


@dataclass(frozen=True, slots=True)
class Refused(Record):
    """Answers Hello or Raised: the agent does not accept this process as the member that it names."""

    op = "refused"
    reason: Annotated[str, partial(as_text, default="no reason given")]


@dataclass(frozen=True, slots=True)
class Noted(Record):
    """Answers Raised."""

    op = "noted"


@dataclass(frozen=True, slots=True)
class ArenaMade(Record):
    """Answers Tracked: where the rank's arena is."""

    op = "arena"
    path: Text
    slot_bytes: AnyInteger


@dataclass(frozen=True, slots=True)
class ArenaFailed(Record):
    """Answers Tracked: there is no arena, for this reason."""

    op = "arena_failed"
    reason: Annotated[str, partial(as_text, default="the agent has no shared memory")]


@dataclass(frozen=True, slots=True)
class Interrupt(Record):
    """Stop if you are in this generation or an older one, and come to the barrier."""

    op = "interrupt"
    generation: Integer
    reason: AsTextOrEmpty
    incident: Incident


@dataclass(frozen=True, slots=True)
class Halt(Record):
    """A gentle Interrupt: leave this generation when your step is complete.

    `keep`: take a snapshot of the state at that point."""

    op = "interrupt"
    generation: Integer
    reason: AsTextOrEmpty
    gentle: Flag
    keep: Flag
    incident: Incident


@dataclass(frozen=True, slots=True)
class Form(Record):
    """Form this generation, which `holdfast.ipc.formation` parses."""

    op = "form"
    generation: Annotated[dict[str, Any], as_is]
    incident: Incident


@dataclass(frozen=True, slots=True)
class Release(Record):
    """Snapshot `step` is READY on all ranks. Unreleased ones up to `void` will never be released. No
    checkpoint is made of those before `kept_from`."""

    op = "release"
    step: Integer
    void: Annotated[int, partial(if_there, default=-1)]
    kept_from: Annotated[int, partial(if_there, default=0)] = 0


@dataclass(frozen=True, slots=True)
class Return(Record):
    """The elastic function of this generation is over on all ranks: return from it."""

    op = "return"
    generation: Integer


@dataclass(frozen=True, slots=True)
class Complete(Record):
    """The job is over. `ok`: it did not fail."""

    op = "complete"
    ok: Annotated[bool, lambda message, key: bool(message.get(key, True))]
    reason: Annotated[str, partial(as_text, default="no reason given")]


@dataclass(frozen=True, slots=True)
class CheckpointTold(Record):
    """Answers Checkpoint. `outcome`: committed, skipped or failed."""

    op = "checkpoint_told"
    request: AsText
    outcome: AsText
    reason: AsTextOrEmpty
    checkpoint: AsTextOrEmpty


@dataclass(frozen=True, slots=True)
class ReportGroups(Record):
    """Report how far your process groups are, and what was called in them in this generation.

    `record_bytes_max`: in so many bytes at most; 0: not that."""

    op = "stand"
    round: AnyInteger
    generation: AnyInteger = 0
    record_bytes_max: AnyInteger = 0


@dataclass(frozen=True, slots=True)
class Profile(Record):
    """Profile your next complete steps in this generation. Answered by ProfileTaken, then by Profiled.

    `path`: where to put the trace. A rank that cannot do it within `timeout_s` gives it up."""

    op = "profile"
    request: Text
    generation: Integer
    steps: Integer
    path: Text
    timeout_s: Number
    bytes_max: Integer


AgentMessage = (
    Welcome | Refused | Noted | ArenaMade | ArenaFailed | Interrupt | Halt | Form | Release | Return
    | Complete | CheckpointTold | ReportGroups | Profile
)  # fmt: skip
"""What an agent sends to a rank."""

_KINDS = by_op(kind for kind in AgentMessage.__args__ if kind is not Halt)


def from_agent(message: Message) -> AgentMessage:
    """Decode what an agent sends. Raises BadMessage."""
    if message.get("op") == Halt.op and message.get("gentle") is True:
        return Halt.decode(message)
    received: AgentMessage = decode(message, _KINDS)
    return received
