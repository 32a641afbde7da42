"""List what the agent's core may be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.deciding.judging import Reading, Tick

if TYPE_CHECKING:
    from agent.deciding.progress import Sight
    from controlplane.core.records.model import Standing
    from holdfast.ipc.frames import Message
    from holdfast.ipc.messages.rank import Hello, RankMessage


@dataclass(frozen=True, slots=True)
class Ordered:
    """The leader orders this. `incident`: the one that the order is part of, or ""."""

    order: Any
    incident: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """A Spawn or a Run failed. `spawned`: the member exists nevertheless; `heals`: the obstacle (full memory,
    a folder that is gone) may pass, and the launch is retried."""

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
class Said:
    """A rank sent another message."""

    member: str
    message: RankMessage


@dataclass(frozen=True, slots=True)
class LauncherSaid:
    """A message of the launcher. `now_ns`: on the clock of its `at_ns`."""

    message: Message
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """The launcher died, and its members with it."""


@dataclass(frozen=True, slots=True)
class Room:
    """A member has an arena for snapshots, or none for this reason."""

    member: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stood:
    """Answers Testify: the stack report of a silent member, as far as there is one."""

    member: str
    age_s: float
    heard_at: float
    standing: Standing


@dataclass(frozen=True, slots=True)
class Looked:
    """All progress pages were read; a rank that is missing here shows nothing."""

    sights: dict[str, Sight]


@dataclass(frozen=True, slots=True)
class Linked:
    """Whether there is a stream to the leader; told once a second."""

    up: bool


@dataclass(frozen=True, slots=True)
class Absent:
    """This coordinator does not lead: it says so, or its host refuses the connection."""

    coordinator: str


Event = (
    Ordered | LaunchFailed | Greeted | Said | LauncherSaid | LauncherLost | Room | Stood | Looked | Linked
    | Absent | Reading | Tick
)  # fmt: skip
