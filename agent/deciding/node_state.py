"""Hold the members of a node, and the operations on them that all handlers of the core share.

Handlers change members here and append the effects they want; nobody else does. A change of status goes one
of two ways: `update` also stores it for the next agent and reports it at once, `note` leaves it to the next
beat. Every beat carries all statuses, so a lost report is made good within a second."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent.deciding import effects as fx
from agent.deciding import judging
from agent.deciding.member import survey
from controlplane.core.records import events
from controlplane.core.records.model import NO_STEP
from controlplane.storage_settings import Allowed
from holdfast.ipc.messages.launcher import SignalCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.deciding.member import LocalMember
    from agent.deciding.progress import HangLimits
    from controlplane.core.records.diagnosis import GradientReport
    from controlplane.core.records.model import Failure, MemberStatus
    from holdfast.ipc.messages.agent import AgentMessage


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What does not change while an agent lives. Times in s; see AgentSettings."""

    node: str
    incarnation: int
    """Distinguishes this agent's process from earlier ones of the same node: the larger is the newer."""
    process_timeout_s: float
    device_timeout_s: float
    fence_after_s: float
    """How long a coordinator may be silent before the ranks are stopped; 0: for ever."""
    limits: HangLimits
    coordinators: tuple[str, ...] = ()
    storages: Allowed = field(default_factory=lambda: Allowed(""))
    """The storage URLs that jobs on this node may use."""


class NodeView(Protocol):
    """What the core may look at by itself: the node's shared memory, connections and pending orders."""

    def step(self, member: LocalMember) -> int:
        """The step on a member's progress page; NO_STEP without a page or a step on it."""

    def held(self, member: LocalMember) -> Sequence[tuple[int, int]]:
        """Generation and step of each READY snapshot in a member's arena, ascending."""

    def wants(self, member: str) -> bool:
        """Whether an order that is not done yet reads this member's arena."""

    def connected(self, member: str) -> bool:
        """Whether this member has a connection to the rank server now."""

    def wrote(self, member: str) -> bool:
        """Whether this member's process has written any output so far."""


class NodeState:
    """All members of a node, the core's clock and timers, and the effects that are wanted. Times in s."""

    def __init__(self, facts: AgentFacts, view: NodeView) -> None:
        self.facts, self.view = facts, view
        self.now = 0.0
        self.watch = judging.NodeWatch(facts.process_timeout_s, facts.device_timeout_s)
        self.snapshots_by_beats = False  # the leader wants no word of offered snapshots but beats
        self.silent: Callable[[judging.Silent], None] = _ignore_silence
        self._all: dict[str, LocalMember] = {}
        self._out: list[fx.Effect] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def __iter__(self) -> Iterator[LocalMember]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> LocalMember | None:
        """The member of this name, or None."""
        return self._all.get(name)

    def of(self, job: str) -> list[LocalMember]:
        """The members of a job."""
        return [member for member in self._all.values() if member.status.job == job]

    def statuses(self) -> tuple[MemberStatus, ...]:
        """The statuses of all members, with their current steps."""
        return tuple([self.status(member) for member in self._all.values()])

    def told_anew(self) -> tuple[MemberStatus, ...]:
        """The statuses for a leader that may not have heard them: failures have aged since."""
        return tuple([self._aged(member) for member in self._all.values()])

    def _aged(self, member: LocalMember) -> MemberStatus:
        status, failure = self.status(member), member.status.failure
        if failure is None:
            return status
        age_s = failure.age_s + max(0.0, self.now - member.failed_at)
        return dataclasses.replace(status, failure=dataclasses.replace(failure, age_s=age_s))

    def status(self, member: LocalMember) -> MemberStatus:
        """A member's status, with its current step."""
        step, status = self.step(member), member.status
        return status if step == status.step else dataclasses.replace(status, step=step)

    def step(self, member: LocalMember) -> int:
        """A member's step: from its progress page, else from its last message."""
        step = self.view.step(member)
        return step if step != NO_STEP else member.status.step

    def asks(self) -> list[events.CheckpointAsked]:
        """The checkpoint requests of living members that no leader has answered."""
        return [asked for member in self._all.values() if member.alive for asked in member.asks.values()]

    # ------------------------------------------------------------ changes

    def take(self, member: LocalMember) -> None:
        """Add a member."""
        member.failed_at = self.now
        self._all[member.name] = member

    def drop(self, member: LocalMember) -> None:
        """Forget a member."""
        self._all.pop(member.name, None)

    def update(self, member: LocalMember, **changes: Any) -> None:
        """Change fields of a status, store it for the next agent, and report it at once."""
        self.note(member, **changes)
        self.do(fx.Keep(member.status))
        self.report(member)

    def note(self, member: LocalMember, **changes: Any) -> None:
        """Change fields of a status. The next beat reports them."""
        if changes.get("failure", member.status.failure) is not member.status.failure:
            member.failed_at = self.now
        member.status = dataclasses.replace(member.status, **changes)

    def survey(self, member: LocalMember) -> None:
        """Enter into a member's status which snapshots its arena holds."""
        member.status = survey(member.status, self.view.held(member))

    def dismiss(self, member: LocalMember) -> None:
        """Forget a member whose process is gone, and remove its shared memory."""
        self.drop(member)
        self.do(fx.Dismiss(member))

    # ------------------------------------------------------------ effects

    def do(self, effect: fx.Effect) -> None:
        """Append an effect to those wanted."""
        self._out.append(effect)

    def push(self, member: LocalMember, message: AgentMessage) -> None:
        """Send a message to a rank."""
        self._out.append(fx.Push(member.name, message))

    def kill(self, member: LocalMember, number: int) -> None:
        """Send a signal to a member's processes."""
        self._out.append(fx.Command(SignalCommand(member.name, int(number))))

    def report(self, member: LocalMember) -> None:
        """Report a member's status to the leader, as it is now."""
        self.send_event(events.MemberReport(self.facts.node, self.facts.incarnation, 0, self.status(member)))

    def send_event(self, event: events.Event | GradientReport) -> None:
        """Send the leader an event."""
        self._out.append(fx.SendEvent(event))

    def failed(self, job: str, member: str, failure: Failure) -> None:
        """Report to the leader that an order about a member could not be carried out."""
        self.send_event(events.OrderFailed(self.facts.node, self.facts.incarnation, job, member, failure))

    def log(self, text: str, *, warning: bool = False) -> None:
        """Log a line for people."""
        self._out.append(fx.Note(text, warning))

    def count(self, kind: str) -> None:
        """Increase a counter of the metrics by one."""
        self._out.append(fx.Count(kind))

    def wanted(self) -> list[fx.Effect]:
        """Return the effects that are wanted since the last call, and clear them."""
        out, self._out = self._out, []
        return out

    # ------------------------------------------------------------ time and silence

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` once `delay_s` has passed."""
        heapq.heappush(self._due, (self.now + delay_s, next(self._count), do))

    def run_due_timers(self) -> None:
        """Run the timers that are due by now."""
        while self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()

    def next_deadline(self) -> float:
        """The latest time at which the next Tick must come; infinity when nothing waits."""
        return min(self.watch.next_deadline(), self._due[0][0] if self._due else math.inf)

    def judge(self, event: judging.Event) -> None:
        """Pass an event to the watch over processes and devices, and act on what it finds."""
        for effect in self.watch.step(self.now, event):
            if isinstance(effect, judging.Silent):
                self.silent(effect)
            else:
                self.send_event(self.device(effect))

    def device(self, changed: judging.DeviceChanged) -> events.DeviceReport:
        """The event that reports a device to the leader."""
        return events.DeviceReport(
            self.facts.node, self.facts.incarnation, changed.device, changed.healthy, changed.reason
        )

    def gone(self, member: LocalMember) -> None:
        """Note that a member's process has ended: stop watching it."""
        self.judge(judging.Unwatched(member.name))
        self.do(fx.Ended(member.name))


def _ignore_silence(effect: judging.Silent) -> None:
    """Ignore a silent process: `Silences` has not been put in place yet."""
