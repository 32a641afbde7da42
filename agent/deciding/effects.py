"""List what the agent's core may want done.

The daemon carries effects out in order and at once (`agent.daemon.dispatch`). Only Spawn and Run can fail;
their failure comes back as a LaunchFailed event, and the effects behind them are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.deciding.member import LocalMember
    from controlplane.core.records.diagnosis import RankEnded
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import Generation, MemberStatus
    from holdfast.ipc.messages.agent import AgentMessage
    from holdfast.ipc.messages.launcher import LauncherCommand


@dataclass(frozen=True, slots=True)
class Push:
    """Send this to a rank, if it is connected. A lost message needs no retry: standing orders are repeated at
    the rank's next hello."""

    member: str
    message: AgentMessage


@dataclass(frozen=True, slots=True)
class Form:
    """Send a rank the order to form a generation."""

    member: str
    generation: Generation
    incident: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Create a new member's shared memory and have the launcher warm an interpreter for it. A failure is
    answered by LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Run:
    """Have a member's warm interpreter become the script. A failure is answered by LaunchFailed."""

    member: str
    order: Launch


@dataclass(frozen=True, slots=True)
class Command:
    """Send this command to the launcher."""

    command: LauncherCommand


@dataclass(frozen=True, slots=True)
class Keep:
    """Store a status where the next agent of this node finds it."""

    status: MemberStatus


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Send this event to the leader."""

    event: Any


@dataclass(frozen=True, slots=True)
class Adopt:
    """Show the output of a member that an earlier agent started, from its current end on."""

    member: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A member's process ended: its log is complete, show the rest and stop following it."""

    member: str


@dataclass(frozen=True, slots=True)
class ReportEnd:
    """Tell the leader how a process ended, with the end of its log. `end` lacks what has to be read; `age_s`:
    how long ago it ended."""

    end: RankEnded
    pid: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Remove the shared memory of a member whose process is gone. The core has forgotten it already."""

    member: LocalMember


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Give a member an arena with slots of this size. Answered by Room."""

    member: str
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class HideTraceback:
    """Do not show this traceback in the output: the member's failure report carries it."""

    member: str
    traceback: str


@dataclass(frozen=True, slots=True)
class TakeStacks:
    """Take the stacks of a member that has stopped beating. Answered by Stood.

    `age_s` and `heard_at` come back in the answer: a beat in between changes the member's `heard_at`, and the
    answer is then out of date."""

    member: str
    age_s: float
    last_message_at: float


@dataclass(frozen=True, slots=True)
class Note:
    """Log a line for people."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Increase a counter of the metrics by one."""

    kind: str


Effect = (
    Push | Form | Spawn | Run | Command | Keep | SendEvent | Adopt | Ended | ReportEnd | Dismiss | MakeRoom
    | HideTraceback | TakeStacks | Note | Count
)  # fmt: skip
