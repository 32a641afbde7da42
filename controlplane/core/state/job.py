"""Define what the core remembers of one job: its members, its seats, and its state by concern.

Mutable records without decisions. The rank index (`seating`), the zombies and the list of unread slots
follow from the members' records. Whoever changes a record in a way that matters to them must call
`Job.changed`; `invariants` checks the index and the zombies against all records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import JobPhase, JobState
from controlplane.core.state.concerns import (
    Checkpoints,
    Ending,
    Generations,
    Numbers,
    PlannedChanges,
    Recovery,
    Replicas,
    Restore,
    Snapshots,
)
from controlplane.core.state.delivery_log import DeliveryLog
from controlplane.core.state.member import Member
from controlplane.core.state.seating import RankIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.model import (
        Generation,
        JobSpec,
        Placement,
    )

ENDED = (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.STOPPED)
"""Phases in which the job is over."""

REASON_MAX = 8_000
"""Longest reason (characters) that etcd gets: a traceback may have any length, a value in etcd may not."""


def shortened(reason: str) -> str:
    """Cut out the middle of a reason that is too long: its beginning, the decision, and its end stay."""
    half = REASON_MAX // 2
    return reason if len(reason) <= REASON_MAX else f"{reason[:half]}\n...\n{reason[-half:]}"


@dataclass(slots=True)
class Job:
    """One job. `seating`: the seats wanted now. `generation`: the newest that etcd holds; its seats may
    differ."""

    spec: JobSpec
    phase: JobPhase = JobPhase.PENDING
    reason: str = ""
    generation: Generation | None = None
    seating: RankIndex = field(default_factory=RankIndex)
    members: dict[str, Member] = field(default_factory=dict)
    by_node: dict[str, dict[str, Member]] = field(default_factory=dict)  # the same members, by node
    # Of all jobs that share it: the names of those that a node has, or had, members of.
    hosts: dict[str, dict[str, None]] = field(default_factory=dict)
    # Cache of `seatless`: ((RankIndex.version, number of nodes), nodes).
    _seatless: tuple[tuple[int, int], list[str]] = field(default_factory=lambda: ((-1, -1), []))
    zombies: dict[str, Member] = field(default_factory=dict)  # judged dead, but their processes live
    unread: dict[str, Member] = field(default_factory=dict)  # members whose arena slots may have changed
    copied_at: float = -math.inf  # when (s) snapshots were last looked at that are not on all ranks
    members_added: int = 0  # so far; numbers the members
    elastic: bool = False  # some member has called the SDK
    barrier: bool = False  # some member has been at the barrier, under this leader or a former one
    sent: DeliveryLog = field(default_factory=DeliveryLog)  # orders that repeat, and when they were sent
    # Orders that are sent once per stream of a node.
    sent_on_stream: DeliveryLog = field(default_factory=DeliveryLog)
    ending: Ending | None = None  # set from the decision to end until etcd holds it

    generations: Generations = field(default_factory=Generations)
    recovery: Recovery = field(default_factory=Recovery)
    restore: Restore = field(default_factory=Restore)
    replicas: Replicas = field(default_factory=Replicas)
    snapshots: Snapshots = field(default_factory=Snapshots)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    changes: PlannedChanges = field(default_factory=PlannedChanges)
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.job

    @property
    def generation_number(self) -> int:
        """The number of its newest generation; 0 when there is none."""
        return self.generation.number if self.generation else 0

    @property
    def ended(self) -> bool:
        """Whether it is over and etcd holds that."""
        return self.phase in ENDED

    def add(self, member: Member) -> Member:
        """Add a member, or return the one that has this name already."""
        known = self.members.setdefault(member.name, member)
        if known is member:
            self.members_added += 1
            member.number = self.members_added
            self.hosts.setdefault(member.node, {})[self.name] = None
        return self.by_node.setdefault(known.node, {}).setdefault(known.name, known)

    def remove(self, member: Member) -> None:
        """Remove a member and all that is known of it."""
        del self.members[member.name]
        del self.by_node[member.node][member.name]
        self.zombies.pop(member.name, None)
        self.unread.pop(member.name, None)

    def seatless(self) -> list[str]:
        """The nodes where the job has had members and has no seat now."""
        at = (self.seating.version, len(self.by_node))
        if self._seatless[0] != at:
            self._seatless = (at, [name for name in self.by_node if not self.seating.uses(name)])
        return self._seatless[1]

    def reread(self) -> None:
        """Have the arena slots of all seated members looked at again."""
        self.unread = {member.name: member for member in self.seated()}

    def sit(self, seats: Iterable[Placement]) -> None:
        """Set the seats that are wanted from now on. Their members must be known."""
        self.seating.sit(seats, self.members)

    def turn(self, generation: Generation) -> None:
        """Make this generation, which etcd holds, the current one."""
        self.generation = generation
        self.seating.turn(generation.number)

    def changed(self, member: Member) -> None:
        """Note that this member's record has changed: bring up to date what follows from it."""
        self.seating.changed(member)
        self.unread[member.name] = member
        if member.failure is not None and member.alive:
            self.zombies[member.name] = member
        elif self.zombies:
            self.zombies.pop(member.name, None)

    def state(self, phase: JobPhase | None = None, reason: str | None = None) -> JobState:
        """What etcd keeps of this job. `phase` and `reason`: the present ones when None.

        Whatever is written while a job ends, or while its ranks return from their function, must say so: a
        leader that read an older phase would call ranks back that have gone. So those two phases win over
        the present one. The data that is left out (`skips`) is that of the generation on its way there, if
        ranks will train in it: a write behind it must not undo that."""
        if phase is None and self.ending is not None:
            phase, reason = self.ending.phase, self.ending.reason
        elif phase is None and self.generations.letting_go[0]:
            phase, reason = JobPhase.LEAVING, self.generations.letting_go[1]
        storing = self.generations.storing_group
        return JobState(
            self.name,
            phase or self.phase,
            shortened(self.reason if reason is None else reason),
            self.recovery.incidents,
            tuple(self.recovery.failures_seen.items()),
            self.numbers.faults,
            storing.resume.skip if storing is not None else self.numbers.skips,
            self.changes.pause,
            self.generations.replica_shard_ids,
            self.recovery.planned,
            self.numbers.suspect_states,
        )

    def kept(self) -> JobState:
        """What to write of this job beside a change of its phase. A generation on its way into etcd, in
        which ranks will train, has written a phase and a reason that a write behind it must not undo: by
        them a next leader knows an incident that is not over."""
        storing = self.generations.storing_group
        if storing is None or self.ending is not None or self.generations.letting_go[0]:
            return self.state()
        return self.state(*self.forming_as(storing))

    def forming_as(self, storing: Generation) -> tuple[JobPhase, str]:
        """Phase and reason of a job whose next generation is on its way into etcd, for whoever reads it."""
        goes_on = self.recovery.incidents and not self.recovery.incident
        return JobPhase.RUNNING if goes_on else JobPhase.FORMING, storing.reason

    @property
    def failed_times(self) -> int:
        """How many of its incidents were failures."""
        return self.recovery.incidents - self.recovery.planned

    def sat_in(self, generation: Generation, member: str) -> bool:
        """Whether this member has a seat in this generation."""
        number, members = self.generations.members_of
        if number != generation.number or len(members) != len(generation.seats):
            members = frozenset(seat.member for seat in generation.seats)
            self.generations.members_of = generation.number, members
        return member in members

    @property
    def seats(self) -> tuple[Placement, ...]:
        """The seats wanted now, by rank."""
        return self.seating.seats

    def seated(self) -> Sequence[Member]:
        """The members in its seats, by rank."""
        return self.seating.members

    def seat_nodes(self) -> tuple[str, ...]:
        """The nodes of its seats, each once, in rank order."""
        return self.seating.nodes

    def dead(self) -> list[Member]:
        """The dead members in its seats, by rank."""
        return self.seating.at(self.seating.rank_sets.dead)
