"""Define the messages between an agent and the launcher of its node.

The agent sends commands, the launcher reports. Every record of the launcher that names a member is about that
member's process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from holdfast.ipc.messages.fields import (
    AnyInteger,
    AsText,
    AsTextOrEmpty,
    BadMessage,
    Flag,
    Integer,
    Record,
    Text,
    as_is,
    by_op,
    decode,
    integer,
    or_null,
    text,
)

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message

VERSION = 1
"""The version of the protocol between agent and launcher. Each refuses the other's hello with another one."""


def _optional(record: Record, *names: str) -> Message:
    """The record's frame, without those of these fields that are None."""
    frame = Record.encode(record)
    return {name: value for name, value in frame.items() if name not in names or value is not None}


def _names(message: Message, key: str) -> tuple[str, ...] | None:
    """A list of strings; None if it is missing. Raises BadMessage."""
    names = message.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadMessage(f"{message.get('op')}: {key} must be a list of strings, not {names!r:.80}")
    return tuple(names)


def _processes(message: Message, key: str) -> tuple[ProcessEntry, ...]:
    entries = message.get(key)
    if not isinstance(entries, list):
        raise BadMessage(f"{message.get('op')}: {key} must be a list, not {entries!r:.80}")
    return tuple(ProcessEntry.decode(entry) for entry in entries)


# ------------------------------------------------------------ from the agent to the launcher


@dataclass(frozen=True, slots=True)
class AttachCommand(Record):
    """Make this connection the agent's. Answered by the ends not yet forgotten, then by LauncherHello."""

    op = "attach"
    version: AnyInteger


@dataclass(frozen=True, slots=True)
class SpawnCommand(Record):
    """Make a warm interpreter for this member. `log`: the file for its output. Idempotent."""

    op = "spawn"
    member: Text
    log: Text


@dataclass(frozen=True, slots=True)
class RunCommand(Record):
    """Have the member's interpreter become this script. Idempotent.

    `argv`, `env`, `cwd` and the flags are passed on: the interpreter checks them (`script.RunOrder`).
    `inherit`: given where the agent is in another container; then the launcher's own environment overrides
    these variables, and `env` overrides both. None, and left out of the frame, otherwise."""

    op = "run"
    member: Text
    argv: Annotated[list[str], as_is]
    env: Annotated[dict[str, str], as_is]
    cwd: Annotated[str, as_is]
    module: Annotated[bool, as_is]
    no_python: Annotated[bool, as_is]
    inherit: Annotated[dict[str, str] | None, as_is] = None

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return _optional(self, "inherit")


@dataclass(frozen=True, slots=True)
class SignalCommand(Record):
    """Send this signal to the member's process group."""

    op = "signal"
    member: Text
    signal: Integer


@dataclass(frozen=True, slots=True)
class StacksCommand(Record):
    """Have the member's process write its Python stacks. Answered by NativeStacks."""

    op = "stacks"
    member: Text


@dataclass(frozen=True, slots=True)
class ForgetCommand(Record):
    """The agent has noted this member's end: do not report it any more."""

    op = "forget"
    member: Text


@dataclass(frozen=True, slots=True)
class JobOverCommand(Record):
    """A job is over; a launcher that was started for it ends once its members have. `ok`: it did not fail."""

    op = "over"
    job: Text
    ok: Flag
    reason: AsTextOrEmpty


@dataclass(frozen=True, slots=True)
class EndCommand(Record):
    """Kill every member and end."""

    op = "end"


LauncherCommand = (
    AttachCommand | SpawnCommand | RunCommand | SignalCommand | StacksCommand | ForgetCommand
    | JobOverCommand | EndCommand
)  # fmt: skip
"""What an agent sends to its launcher."""

COMMANDS = by_op(LauncherCommand.__args__)


def launcher_command(message: Message) -> LauncherCommand:
    """Decode what an agent sends. Raises BadMessage."""
    command: LauncherCommand = decode(message, COMMANDS)
    return command


# ------------------------------------------------------------ from the launcher to the agent


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One living process in LauncherHello. `state`: "spawning", "warm" or "running"; `pid` 0: not forked."""

    member: str
    pid: int
    state: str

    @classmethod
    def decode(cls, entry: object) -> Self:
        """One entry of LauncherHello. Raises BadMessage."""
        if not isinstance(entry, dict):
            raise BadMessage(f"hello: a member must be an object, not {entry!r:.80}")
        named = {"op": "hello", **entry}
        return cls(text(named, "member"), integer(named, "pid"), text(named, "state"))


@dataclass(frozen=True, slots=True)
class LauncherHello(Record):
    """Answers AttachCommand: the launcher's id, and the processes that live."""

    op = "hello"
    version: AnyInteger
    launcher: Text
    members: Annotated[tuple[ProcessEntry, ...], _processes]

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return {**Record.encode(self), "members": [dataclasses.asdict(entry) for entry in self.members]}


@dataclass(frozen=True, slots=True)
class MemberWarm(Record):
    """The interpreter waits for its RunCommand."""

    op = "warm"
    member: Text
    pid: Integer


@dataclass(frozen=True, slots=True)
class MemberRunning(Record):
    """The script was started.

    `fresh_for`: the variables for which it needed a new interpreter instead of the warm one. None, and left
    out of the frame, in the answer to a repeated command."""

    op = "running"
    member: Text
    pid: Integer
    fresh_for: Annotated[tuple[str, ...] | None, _names] = None

    def encode(self) -> Message:
        """The message as the JSON object of a frame."""
        return _optional(self, "fresh_for")


@dataclass(frozen=True, slots=True)
class MemberExited(Record):
    """The process has ended, with this exit code or by this signal, at `at_ns` (CLOCK_MONOTONIC).

    Repeated at every attach until ForgetCommand."""

    op = "exited"
    member: Text
    pid: Integer
    code: Annotated[int | None, or_null]
    signal: Annotated[int | None, or_null]
    at_ns: Integer


@dataclass(frozen=True, slots=True)
class MemberFailed(Record):
    """The member could not be started, or a command about it could not be carried out.

    `member` "": the launcher refuses the agent itself."""

    op = "failed"
    member: AsTextOrEmpty
    message: AsText


@dataclass(frozen=True, slots=True)
class NativeStacks(Record):
    """Answers StacksCommand: the process was asked for its Python stacks.

    `reason`: why it was not; "" if it was. `native`: what the kernel shows of its threads. `process`: how it
    lists the process, in words; "": not known, as from an older launcher."""

    op = "stood"
    member: Text
    reason: AsTextOrEmpty
    native: AsTextOrEmpty
    process: AsTextOrEmpty = ""


@dataclass(frozen=True, slots=True)
class LauncherStopping(Record):
    """The launcher got SIGTERM: the agent is to leave, and to send EndCommand when it has left."""

    op = "stopping"


@dataclass(frozen=True, slots=True)
class LauncherNote(Record):
    """A message for people."""

    op = "note"
    message: AsText


LauncherMessage = (
    LauncherHello | MemberWarm | MemberRunning | MemberExited | MemberFailed | NativeStacks
    | LauncherStopping | LauncherNote
)  # fmt: skip
"""What a launcher sends to its agent."""

_REPORTS = by_op(LauncherMessage.__args__)


def from_launcher(message: Message) -> LauncherMessage:
    """Decode what a launcher sends. Raises BadMessage."""
    report: LauncherMessage = decode(message, _REPORTS)
    return report
