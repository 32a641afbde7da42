"""List the events that the agent's core takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.deciding.judging import Reading, Tick

if TYPE_CHECKING:
    from agent.deciding.progress import PageReading
    from controlplane.core.records.model import Standing
    from holdfast.ipc.messages.launcher import LauncherMessage
    from holdfast.ipc.messages.rank import Hello, RankMessage


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of the leader. `incident`: the incident that the order is part of, "" for none."""

    order: Any
    incident: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """A Spawn or a Run failed.

    `spawned`: the member exists all the same (its Run failed). `heals`: the obstacle (full memory, a folder
    that is gone) may pass by itself, so the launch is retried."""

    member: str
    reason: str
    spawned: bool
    heals: bool = False


@dataclass(frozen=True, slots=True)
class Greeted:
    """A rank said hello to the rank server, for the first time or again."""

    member: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class RankReported:
    """A rank sent a message other than its hello."""

    member: str
    message: RankMessage


@dataclass(frozen=True, slots=True)
class LauncherReported:
    """The launcher sent a message. `now_ns`: when it arrived, on the clock of the message's own `at_ns`."""

    message: LauncherMessage
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """The launcher died, and its members with it."""


@dataclass(frozen=True, slots=True)
class ArenaAnswer:
    """A member has an arena for snapshots (`reason` is ""), or none, and why."""

    member: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StacksReported:
    """The answer to TakeStacks: the stack report of a silent member, as far as its stacks could be taken."""

    member: str
    age_s: float
    last_message_at: float
    report: Standing


@dataclass(frozen=True, slots=True)
class Looked:
    """All progress pages were read. A rank that is missing here has no page, or no mark on it yet."""

    sights: dict[str, PageReading]


@dataclass(frozen=True, slots=True)
class Linked:
    """Whether the stream to the leader is up; sent once a second. `snapshots_by_beats`: the last leader wants
    no word of offered snapshots but beats."""

    up: bool
    snapshots_by_beats: bool = False


@dataclass(frozen=True, slots=True)
class NotLeading:
    """This coordinator does not lead: it answered so, or its host refused the connection."""

    coordinator: str


Event = (
    Ordered | LaunchFailed | Greeted | RankReported | LauncherReported | LauncherLost | ArenaAnswer
    | StacksReported | Looked | Linked | NotLeading | Reading | Tick
)  # fmt: skip
