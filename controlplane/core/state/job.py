"""What the core remembers of one job and its members. Plain mutable records with no decisions in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import JobPhase, JobState
from controlplane.core.state.concerns import (
    Checkpoints,
    Ending,
    Generations,
    Numbers,
    Places,
    Recovery,
    Replicas,
    Restore,
    Snapshots,
)
from controlplane.core.state.delivery_log import DeliveryLog
from controlplane.core.state.member import Member
from controlplane.core.state.seating import Seating

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.model import (
        Generation,
        JobSpec,
        Placement,
    )

ENDED = (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.STOPPED)

REASON_MAX = 8_000
"""Characters of a reason that etcd keeps: a traceback may have any length, a value in etcd may not."""


def shortened(reason: str) -> str:
    """A reason with its middle left out when it is too long: what was decided, and how it ended, stay."""
    half = REASON_MAX // 2
    return reason if len(reason) <= REASON_MAX else f"{reason[:half]}\n...\n{reason[-half:]}"


@dataclass(slots=True)
class Job:
    """One job. `seating` is the layout wanted now; `generation` the newest that etcd holds for it. Whoever
    changes a member's record says so to `changed`."""

    spec: JobSpec
    phase: JobPhase = JobPhase.PENDING
    reason: str = ""
    generation: Generation | None = None
    seating: Seating = field(default_factory=Seating)
    members: dict[str, Member] = field(default_factory=dict)
    by_node: dict[str, dict[str, Member]] = field(default_factory=dict)  # the same members
    # the answer of `seatless`, as of this version of the seating and so many nodes with members:
    _seatless: tuple[tuple[int, int], list[str]] = field(default_factory=lambda: ((-1, -1), []))
    zombies: dict[str, Member] = field(default_factory=dict)  # judged dead, and a process is there
    unread: dict[str, Member] = field(default_factory=dict)  # their slots may have changed
    members_added: int = 0
    elastic: bool = False  # some member has spoken through the SDK
    barrier: bool = False  # some member has come to the barrier, in this leader's sight or before
    sent: DeliveryLog = field(default_factory=DeliveryLog)  # orders that repeat, and when they left
    told: DeliveryLog = field(default_factory=DeliveryLog)  # what is said once on every stream
    ending: Ending | None = None

    generations: Generations = field(default_factory=Generations)
    recovery: Recovery = field(default_factory=Recovery)
    restore: Restore = field(default_factory=Restore)
    replicas: Replicas = field(default_factory=Replicas)
    snapshots: Snapshots = field(default_factory=Snapshots)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    places: Places = field(default_factory=Places)
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.job

    @property
    def ended(self) -> bool:
        """It is over, and etcd knows."""
        return self.phase in ENDED

    def add(self, member: Member) -> Member:
        """Take a member into the book, or find the one of that name."""
        known = self.members.setdefault(member.name, member)
        if known is member:
            self.members_added += 1
            member.number = self.members_added
        return self.by_node.setdefault(known.node, {}).setdefault(known.name, known)

    def remove(self, member: Member) -> None:
        """Take a member out of the book."""
        del self.members[member.name]
        del self.by_node[member.node][member.name]
        self.zombies.pop(member.name, None)
        self.unread.pop(member.name, None)

    def seatless(self) -> list[str]:
        """The nodes where it has had members, and has no seat."""
        at = (self.seating.version, len(self.by_node))
        if self._seatless[0] != at:
            self._seatless = (at, [name for name in self.by_node if not self.seating.uses(name)])
        return self._seatless[1]

    def reread(self) -> None:
        """What the seated members say of their slots is to be looked at anew."""
        self.unread = {member.name: member for member in self.seated()}

    def sit(self, seats: Iterable[Placement]) -> None:
        """The layout that is wanted from now on, with members that are known."""
        self.seating.sit(seats, self.members)

    def turn(self, generation: Generation) -> None:
        """etcd holds this generation."""
        self.generation = generation
        self.seating.turn(generation.number)

    def changed(self, member: Member) -> None:
        """What the book says of a member is another now."""
        self.seating.changed(member)
        self.unread[member.name] = member
        if member.failure is not None and member.alive:
            self.zombies[member.name] = member
        elif self.zombies:
            self.zombies.pop(member.name, None)

    def state(self, phase: JobPhase | None = None, reason: str | None = None) -> JobState:
        """What etcd keeps of it. One that is ending has ended, and one whose ranks are to return has
        let them, whatever else is told of it meanwhile."""
        if phase is None and self.ending is not None:
            phase, reason = self.ending.phase, self.ending.reason
        elif phase is None and self.generations.letting_go[0]:
            phase, reason = JobPhase.LEAVING, self.generations.letting_go[1]
        return JobState(
            self.name,
            phase or self.phase,
            shortened(self.reason if reason is None else reason),
            self.recovery.incidents,
            tuple(self.recovery.failures_seen.items()),
            self.numbers.faults,
            self.numbers.skips,
            self.places.pause,
            self.generations.cut_words,
            self.recovery.planned,
        )

    @property
    def failed_times(self) -> int:
        """How many of its incidents were failures."""
        return self.recovery.incidents - self.recovery.planned

    def sat_in(self, generation: Generation, member: str) -> bool:
        """Whether this member has a seat of the generation."""
        if self.generations.roll[0] != generation.number or len(self.generations.roll[1]) != len(
            generation.seats
        ):
            self.generations.roll = generation.number, frozenset(seat.member for seat in generation.seats)
        return member in self.generations.roll[1]

    @property
    def seats(self) -> tuple[Placement, ...]:
        """The layout wanted now, by rank."""
        return self.seating.seats

    def seated(self) -> Sequence[Member]:
        """The members in its seats, by rank."""
        return self.seating.members

    def seat_nodes(self) -> tuple[str, ...]:
        """The nodes of its seats, each once, in rank order."""
        return self.seating.nodes

    def dead(self) -> list[Member]:
        """The dead in its seats, by rank."""
        return self.seating.at(self.seating.rolls.dead)
