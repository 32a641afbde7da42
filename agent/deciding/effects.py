"""What an agent's core wants done. The shell does it in this order, at once."""

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
    """Say this to a rank, if it is connected: levels are said again at its next hello."""

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
    """Make room for a new member and have the launcher warm an interpreter. May fail: LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Run:
    """Have a member's interpreter become the script. May fail: LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Command:
    """Say this to the launcher."""

    words: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Put a status where the next agent finds it."""

    status: MemberStatus


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the leader."""

    event: Any


@dataclass(frozen=True, slots=True)
class Adopt:
    """An earlier agent's member lives on: its output is shown from now on."""

    member: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A member's process ended: its output is complete."""

    member: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Forget a member whose process is gone, its shared memory too. The book knows it no more."""

    member: Member


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Give a member an arena whose slots have this room. Answered by Room."""

    member: str
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class Conceal:
    """Do not show this traceback: it is reported."""

    member: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Testify:
    """Take the stacks of a member that does not speak any more. Answered by Stood."""

    member: str
    age_s: float
    heard_at: float


@dataclass(frozen=True, slots=True)
class Note:
    """A line for people."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Something for the metrics."""

    kind: str


Effect = (
    Push | Form | Spawn | Run | Command | Keep | Tell | Adopt | Ended | Dismiss | MakeRoom | Conceal
    | Testify | Note | Count
)  # fmt: skip
