"""List what the agent's core may want done. The daemon carries effects out in order, at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.deciding.member import Member
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import Generation, MemberStatus
    from holdfast.ipc.messages.agent import AgentMessage


@dataclass(frozen=True, slots=True)
class Push:
    """Send this to a rank, if it is connected. Orders that are levels are repeated at its next hello."""

    member: str
    message: AgentMessage


@dataclass(frozen=True, slots=True)
class Form:
    """Have a rank form a generation."""

    member: str
    generation: Generation
    incident: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Create a new member's shared memory and have the launcher warm an interpreter. May fail:
    LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Run:
    """Have a member's interpreter become the script. May fail: LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Command:
    """Send this to the launcher."""

    words: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Store a status where the next agent finds it."""

    status: MemberStatus


@dataclass(frozen=True, slots=True)
class Tell:
    """Send this event to the leader."""

    event: Any


@dataclass(frozen=True, slots=True)
class Adopt:
    """An earlier agent's member lives on: show its output from now on."""

    member: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A member's process ended: its output is complete."""

    member: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Forget a member whose process is gone, and its shared memory. The core has forgotten it already."""

    member: Member


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Give a member an arena whose slots have this room. Answered by Room."""

    member: str
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class Conceal:
    """Do not show this traceback: the member's failure report has it."""

    member: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Testify:
    """Take the stacks of a member that does not beat any more. Answered by Stood."""

    member: str
    age_s: float
    heard_at: float


@dataclass(frozen=True, slots=True)
class Note:
    """Log a line for people."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Count something for the metrics."""

    kind: str


Effect = (
    Push | Form | Spawn | Run | Command | Keep | Tell | Adopt | Ended | Dismiss | MakeRoom | Conceal
    | Testify | Note | Count
)  # fmt: skip
