"""Define the messages that a rank sends to its agent.

Steps count over all elastic functions of the job. `held_step`: completed steps of the clean state that the
rank holds; -1: none. `held_generation`: the newest generation in which state was restored there; 0: none, or
an older SDK. `ended_step`: steps whose bodies have ended there; no generation may begin later than that.
None: no such limit."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

from holdfast.ipc.messages.fields import (
    AnyInteger,
    AnyText,
    AsText,
    AsTextOrEmpty,
    BadMessage,
    Flag,
    Integer,
    Number,
    Record,
    Text,
    TextOrEmpty,
    by_op,
    decode,
    if_there,
    or_null,
    text,
)
from holdfast.ipc.messages.gradients import Gradients
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken
from holdfast.ipc.messages.replicas import ReplicasCompared

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

VERSION = 1
"""The version of the protocol between rank and agent. An agent refuses a rank with another one."""
WHOLE_STATE = "all"
"""The shard of a rank that holds the whole state; assumed of a rank that names none."""
PHASES = ("starting", "ready", "forming", "running", "finished")
"""The phases of a rank whose process lives."""
FAULT_KINDS = ("nan", "user")
VALUES_MAX = 32
"""Numbers in one report; the rest of what a script reports is left out."""
_GROUPS_MAX = 32
_STORE_MAX = 300
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,119}")


def _phase(message: Message, key: str) -> str:
    value = message.get(key)
    if value not in PHASES:
        raise BadMessage(f"{message.get('op')}: phase {value!r:.80} must be one of {', '.join(PHASES)}")
    return str(value)


def _store(message: Message, key: str) -> str | None:
    """The address of a rank's TCPStore, which every beat of the node carries; None: not sent."""
    store = text(message, key) if key in message else None
    if store is not None and len(store) > _STORE_MAX:
        raise BadMessage(f"{message.get('op')}: store of {len(store)} characters is not host:port")
    return store


def _shard(message: Message, key: str) -> str:
    shard = text(message, key, WHOLE_STATE)
    if not _SHARD.fullmatch(shard):
        raise BadMessage(f"tracked: shard {shard!r:.80} is not a shard id")
    return shard


def _request(message: Message, key: str) -> str:
    request = text(message, key)
    if not _REQUEST.fullmatch(request):
        raise BadMessage(f"checkpoint: request {request!r:.80} must be 1 to 120 letters, digits, . _ - :")
    return request


def _values(message: Message, key: str) -> dict[str, float]:
    """Numbers by name; values that are not numbers are left out."""
    values = message.get(key)
    if not isinstance(values, dict):
        raise BadMessage("report: values must map names to numbers")
    return {
        name: float(value)
        for name, value in list(values.items())[:VALUES_MAX]
        if type(value) is float or (type(value) is int and abs(value) < 1 << 62)
    }


def _kind(message: Message, key: str) -> str:
    kind = text(message, key)
    if kind not in FAULT_KINDS:
        raise BadMessage(f"fault: kind {kind!r:.80} must be one of {', '.join(FAULT_KINDS)}")
    return kind


def _groups(message: Message, key: str) -> tuple[Group, ...]:
    groups = message.get(key)
    if not isinstance(groups, list):
        raise BadMessage("standing: groups must be a list")
    return tuple(Group.decode(entry) for entry in groups[:_GROUPS_MAX])


EndedStep = Annotated[int | None, or_null]
HeldGeneration = Annotated[int, partial(if_there, default=0)]  # 0 from an older SDK


@dataclass(frozen=True, slots=True)
class Hello(Record):
    """Who the rank is, its progress, and its clean state. The first message on every connection.

    `store`: "host:port" of its TCPStore."""

    op = "hello"
    version: AnyInteger
    member: AnyText
    pid: AnyInteger
    store: Annotated[str | None, _store]
    phase: Annotated[str, _phase]
    generation: Integer
    step: Integer
    held_step: Integer
    held_generation: HeldGeneration
    ended_step: EndedStep


@dataclass(frozen=True, slots=True)
class Beat(Record):
    """The rank's process lives. A beat may be older than the message that changed its phase."""

    op = "beat"
    phase: AnyText
    generation: AnyInteger
    step: Integer


@dataclass(frozen=True, slots=True)
class Tracked(Record):
    """How many bytes one slot of the rank's arena needs, and which shard of the state it holds."""

    op = "tracked"
    bytes: Integer
    shard: Annotated[str, _shard] = WHOLE_STATE


@dataclass(frozen=True, slots=True)
class Ready(Record):
    """The rank is at the barrier, with this clean state.

    `generation`: the one it was in last; 0: none."""

    op = "ready"
    generation: Integer
    held_step: Integer
    held_generation: HeldGeneration
    ended_step: EndedStep
    step: Integer


@dataclass(frozen=True, slots=True)
class Forming(Record):
    """The rank forms this generation.

    `activity`: what it does besides ("script": it runs the script's code between finished functions). Left
    out of the frame if ""."""

    op = "forming"
    generation: Integer
    activity: TextOrEmpty = ""

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        frame: Message = {"op": self.op, "generation": self.generation}
        return {**frame, "activity": self.activity} if self.activity else frame


@dataclass(frozen=True, slots=True)
class Running(Record):
    """Groups and state are in place: the rank trains, from `step` completed steps."""

    op = "running"
    generation: Integer
    step: Integer


@dataclass(frozen=True, slots=True)
class Started(Record):
    """The generation's first step is complete. `inexact`: what differs here from an undisturbed run."""

    op = "started"
    generation: Integer
    step: Integer
    form_s: Number
    restore_s: Number
    first_step_s: Number
    inexact: TextOrEmpty = ""


@dataclass(frozen=True, slots=True)
class Broken(Record):
    """A collective failed here: a peer is suspected, not this rank."""

    op = "broken"
    generation: AnyInteger
    message: AsText


@dataclass(frozen=True, slots=True)
class Snapshot(Record):
    """A slot of the arena is READY. `stall_s`: how long the copy kept the rank from training.

    - `spacing`: how often snapshots are taken from now on, and why, in words.
    - `offered`: the rank takes more snapshots than it reports. Of those of this generation, only this one is
      sure to stay until it is released.

    What says nothing is left out of the frame."""

    op = "snapshot"
    generation: Integer
    step: Integer
    slot: AnyInteger
    stall_s: Number
    spacing: TextOrEmpty = ""
    offered: Flag = False

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        frame = Record.encode(self)
        return {name: frame[name] for name in frame if name not in ("spacing", "offered") or frame[name]}


@dataclass(frozen=True, slots=True)
class Checkpoint(Record):
    """The script wants the state after `step` steps durable now. Repeated until CheckpointTold answers."""

    op = "checkpoint"
    request: Annotated[str, _request]
    step: Integer
    generation: Integer


@dataclass(frozen=True, slots=True)
class SnapshotSkipped(Record):
    """There is no snapshot of this step, for this reason."""

    op = "snapshot_skipped"
    generation: AnyInteger
    step: AnyInteger
    reason: AsText


@dataclass(frozen=True, slots=True)
class Finished(Record):
    """The elastic function has returned here; the rank waits for Return."""

    op = "finished"
    generation: Integer
    step: Integer


@dataclass(frozen=True, slots=True)
class Raised(Record):
    """The script raised an exception, and its process ends next. Needs no Hello; answered by Noted.

    `step`: None, and left out of the frame, if it is not known."""

    op = "raised"
    version: AnyInteger
    member: AnyText
    pid: AnyInteger
    exception: Text
    message: Text
    traceback: TextOrEmpty = ""
    step: Annotated[int | None, partial(if_there, default=None)] = None

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        frame = Record.encode(self)
        return frame if self.step is not None else {name: frame[name] for name in frame if name != "step"}


@dataclass(frozen=True, slots=True)
class Report(Record):
    """What the script reports: numbers by name."""

    op = "report"
    step: Integer
    values: Annotated[dict[str, float], _values]


@dataclass(frozen=True, slots=True)
class RestoreFailed(Record):
    """The state of this generation could not be restored."""

    op = "restore_failed"
    generation: AnyInteger
    reason: Text


@dataclass(frozen=True, slots=True)
class Group:
    """How far one process group has come: collectives entered (`sequence`) and `ended`, and the last one.

    `ended` -1: not known. `bytes`: size of the last one's inputs."""

    group: str
    sequence: int
    ended: int
    operation: str
    bytes: int

    @classmethod
    def decode(cls, entry: object) -> Self:
        """One entry of GroupProgress. Raises BadMessage."""
        if not isinstance(entry, dict):
            raise BadMessage("standing: a group is not an object")
        numbers = [entry.get(name) for name in ("sequence", "ended", "bytes")]
        sequence, ended, size = (n if isinstance(n, int) and -1 <= n < 1 << 62 else -1 for n in numbers)
        group, operation = str(entry.get("group"))[:120], str(entry.get("operation", ""))[:80]
        return cls(group, sequence, ended, operation, max(size, 0))


@dataclass(frozen=True, slots=True)
class GroupProgress(Record):
    """Answers ReportGroups: how far the process groups are.

    `trouble`: why they could not be read. `threads`: stacks of the threads other than the main one. `record`:
    what was called in them, as `groups.flight_record` packs it; "": not asked for, or not known."""

    op = "standing"
    round: AnyInteger
    groups: Annotated[tuple[Group, ...], _groups]
    trouble: AsTextOrEmpty = ""
    threads: AsTextOrEmpty = ""
    record: AsTextOrEmpty = ""

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {**Record.encode(self), "groups": [dataclasses.asdict(group) for group in self.groups]}


@dataclass(frozen=True, slots=True)
class Fault(Record):
    """The numbers of this step are wrong. `kind`: one of FAULT_KINDS.

    `rollback`: all ranks go back to an older state; else the job stops."""

    op = "fault"
    generation: Integer
    step: Integer
    kind: Annotated[str, _kind]
    reason: Text
    rollback: Flag


RankMessage = (
    Beat | Tracked | Ready | Forming | Running | Started | Broken | Snapshot | Checkpoint | SnapshotSkipped
    | Finished | Raised | Report | RestoreFailed | GroupProgress | Fault | ProfileTaken | Profiled
    | Gradients
    | ReplicasCompared
)  # fmt: skip
"""What a rank sends after its Hello."""

_KINDS = by_op(RankMessage.__args__)


def from_rank(message: Message) -> RankMessage:
    """Decode what a rank sends after its Hello. Raises BadMessage."""
    received: RankMessage = decode(message, _KINDS)
    return received
