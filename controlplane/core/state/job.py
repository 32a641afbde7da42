"""What the core remembers of one job and its members. Plain mutable records with no decisions in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_STEP, JobPhase, JobState
from controlplane.core.state.cadence import Costs
from controlplane.core.state.delivery_log import Sent
from controlplane.core.state.durability_memory import Keeping
from controlplane.core.state.member import Member
from controlplane.core.state.seating import Seating

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.effects import Effect
    from controlplane.core.records.evidence import Evidence
    from controlplane.core.records.model import (
        CheckpointRecord,
        Fault,
        Generation,
        Incident,
        JobSpec,
        Partner,
        Placement,
        Resume,
        Tier,
        Window,
    )
    from controlplane.core.state.cadence import Choice
    from controlplane.core.state.inquiries import Look, Looks
    from controlplane.core.state.pulse import Pulse
    from controlplane.core.state.resize import Resize
    from controlplane.core.state.saving import Ask, Collecting, Saving

ENDED = (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.STOPPED)

REASON_MAX = 8_000
"""Characters of a reason that etcd keeps: a traceback may have any length, a value in etcd may not."""


def shortened(reason: str) -> str:
    """A reason with its middle left out when it is too long: what was decided, and how it ended, stay."""
    half = REASON_MAX // 2
    return reason if len(reason) <= REASON_MAX else f"{reason[:half]}\n...\n{reason[-half:]}"


@dataclass(slots=True)
class Clock:
    """When (s) an incident reached what: the ends of its phases."""

    injured: float = 0.0  # believed time of the injury
    heard: float = 0.0  # the core heard of it
    judged: float = 0.0  # verdict and plan; orders to stop leave in the same step
    stored: float = 0.0  # the generation that mends it is in etcd


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends, while etcd is being told."""

    phase: JobPhase
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What our own order put into a member's arena."""

    order: tuple[str, ...]  # its key
    tier: Tier
    step: int
    source: str = ""  # PEER: whose snapshot
    keeper: str = ""  # PEER: the node that kept the copy
    checkpoint: str = ""
    doubted: bool = False  # PEER: nobody vouches for it


@dataclass(slots=True)
class Restoring:
    """A resume that is being brought in place: `waits` are the orders not answered yet."""

    resume: Resume
    waits: dict[tuple[str, ...], tuple[Effect, Answer]]
    keepers: tuple[str, ...] = ()  # nodes whose copies it needs
    again_at: float = 0.0  # when the orders are looked at again
    streams: int = -1  # of the machine, when they were


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
    ghosts: dict[str, Member] = field(default_factory=dict)  # judged dead, and a process is there
    unread: dict[str, Member] = field(default_factory=dict)  # their slots may have changed
    enlisted: int = 0
    elastic: bool = False  # some member has spoken through the SDK
    barrier: bool = False  # some member has come to the barrier, in this leader's sight or before
    known: dict[int, None] = field(default_factory=dict)  # generation numbers that etcd holds or held
    number: int = 0  # highest generation number given to any Store
    formed: int = 0  # highest number stored, or on its way, with a store to meet at
    storing: Generation | None = None  # on its way into etcd
    sent: Sent = field(default_factory=Sent)  # orders that repeat, and when they left
    told: Sent = field(default_factory=Sent)  # what is said once on every stream
    fresh: list[Evidence] = field(default_factory=list)  # evidence not judged yet
    evidence: list[Evidence] = field(default_factory=list)  # of the open incident
    incident: Incident | None = None
    planned: int = 0  # of its incidents: changes that people or a policy wanted, in which nothing failed
    over: str = ""  # why it trains, when it does so after an incident
    inexact: dict[str, None] = field(default_factory=dict)  # what is not as if nothing had failed
    clock: Clock = field(default_factory=Clock)
    relaunch: bool = False  # the open incident starts every rank again
    stop_by: float = 0.0
    interrupted: tuple[int, float] = (0, 0.0)  # (generation, since when) that was told to stop
    halted: tuple[float, int, int] | None = None  # when (s) all were told to leave which generation, on how
    # many streams since the leader began
    form_by: float = 0.0
    broken_since: float | None = None
    looks: Looks | None = None  # which nodes reach each other, while that is asked
    gathered_at: float | None = None  # since when the minimum of nodes is there
    launched_at: float = 0.0
    incidents: int = 0
    unfinished: int = 0  # the incident that was open when a former leader ended, until its ranks train on
    failures_seen: dict[str, int] = field(default_factory=dict)
    counted: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # (failure, generation): ranks
    spare_failures: dict[str, int] = field(default_factory=dict)  # by node
    node_restarts: list[float] = field(default_factory=list)  # when (s) nodes came back without its ranks
    known_step: int = NO_STEP  # newest step known to be completed anywhere
    newest_step: int = NO_STEP  # that any member was seen in
    shards: dict[int, str] = field(default_factory=dict)  # rank -> what it holds in this layout
    lines: dict[int, tuple[int, int]] = field(default_factory=dict)  # generation -> (step, born) of its start
    restoring: Restoring | None = None  # LOADING: what was chosen, and the orders that bring it in place
    answered: dict[str, Answer] = field(default_factory=dict)  # member -> the newest such order that is done
    fetch_tries: dict[tuple[str, int], int] = field(default_factory=dict)  # failed, by the key in `spoiled`
    fetch_again_at: float = 0.0
    load_trouble: str = ""  # why the checkpoint chosen could not be loaded yet
    replan: bool = True  # partners are to be looked at again
    partners: dict[str, tuple[str, ...]] = field(default_factory=dict)  # shard -> nodes that keep copies
    leftovers: bool = True  # nodes may keep copies of generations that are over
    leftovers_at: int = NO_STEP  # the release at which that was looked at last
    replicated: dict[str, tuple[Partner, ...]] = field(default_factory=dict)  # owner's node -> as ordered
    alone: str = ""  # why some shard has too few copies
    spoiled: dict[tuple[str, int], str] = field(default_factory=dict)  # snapshots that would not restore,
    # by (member, or member@node for a copy at a peer, step)
    vouches: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict)  # by member that this leader
    # has heard: (generation, step) -> what its agent says that the snapshot hashes to
    refuted: dict[tuple[str, str, int, int], None] = field(default_factory=dict)  # (node, member, generation,
    # step): copies that are not believed, as was told
    altered: dict[str, None] = field(default_factory=dict)  # copies that were not what was vouched for: told
    # with the state that is chosen instead
    phases: dict[str, float] = field(default_factory=dict)  # of the members' restart, slowest of each
    checkpoints: dict[str, CheckpointRecord] = field(default_factory=dict)  # what etcd holds
    snapshots: dict[int, tuple[int, ...]] = field(default_factory=dict)  # rank -> its slots, this generation
    released: int = NO_STEP
    retold: tuple[int, int] = (-1, -1)  # streams and seats as they were when all had been told of it
    behind: int = NO_STEP  # newest snapshot up to where this generation begins: older slots may go, or no
    # rank finds room
    lapse_step: int = NO_STEP  # whoever shows this step may have found no room for a snapshot
    paced: tuple[float, int] | None = None  # when (s), and in which step, the ranks' pace begins to be
    # measured: the last release, or the generation's begin; None: neither in this leader's sight
    voided: int = NO_STEP  # no unreleased snapshot up to this step will be released any more
    begun: int = 0  # step of the newest checkpoint begun
    begun_at: float = -1.0  # when (s) that was; -1: none yet, and the job has not run
    skipped: int = 0  # step of the newest checkpoint that was due and skipped
    skipped_at: float = -1.0
    commits: int = 0  # checkpoints committed in this leader's sight
    pulses: dict[str, Pulse] = field(default_factory=dict)  # what it owes while it trains
    savings: dict[str, Saving] = field(default_factory=dict)  # in flight, by id, in the order they began
    asks: dict[tuple[str, str], Ask] = field(default_factory=dict)  # by (member, request)
    costs: Costs = field(default_factory=Costs)
    keeping: Keeping = field(default_factory=Keeping)
    choice: Choice | None = None  # the interval that was chosen, and told, last
    watched_at: float = 0.0  # since when (s) this leader has seen it run
    incidents_before: int = 0  # those before that
    collecting: Collecting | None = None
    full_owed: bool = False  # a full checkpoint gives way to a collection: no further one before it
    uncollected: tuple[str, ...] = ()  # marked, and could not be taken off the storage at the last try
    collect_again_at: float = 0.0  # they are tried again then, or with the next ones that are to go
    scrubbing: tuple[str, str] | None = None  # (checkpoint, node)
    scrubbed_at: float = -1.0
    final_by: float | None = None
    final_tried: bool = False
    onward: bool = False  # its ranks stand at the barrier of another elastic function than before
    letting_go: tuple[int, str] = (0, "")  # (generation, why): once etcd knows, its ranks return from it
    returned: bool = False  # it is started again because of what befell it behind its function
    ending: Ending | None = None
    watched: dict[str, int] = field(default_factory=dict)  # the rank last found to be waited for, by what for
    roll: tuple[int, frozenset[str]] = (0, frozenset())  # (a generation, its members)
    stalled: dict[str, None] = field(default_factory=dict)  # members past their deadline, as agents say
    hang: Look | None = None  # the look at where its ranks stand
    hang_rounds: int = 0  # such looks begun so far
    faults: tuple[Fault, ...] = ()  # states that are not trusted
    skips: tuple[Window, ...] = ()  # data that is left out by policy
    on_fault: str = "rollback"  # what is done about the newest fault
    pause: str = ""  # why people want it paused; "": they do not
    wanted_now: bool = False  # people wait for a checkpoint that has not begun
    resize: Resize | None = None  # a planned change of places under way
    resize_at: float = 0.0  # no other one before (s)
    leave_at: float = 0.0  # nor is a drained node left before (s): the state could not be made durable
    unsaved: int = 0  # so often in a row
    short_since: float | None = None  # since when (s) dead seats wait for a node
    cut_at: int = 0  # the generation in which the number of ranks changed last
    cut_words: tuple[str, ...] = ()  # the shards of one replica, by rank, once they were seen to repeat
    cut_words_told: tuple[str, ...] = ()  # as etcd was asked to keep them

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.job

    @property
    def ended(self) -> bool:
        """It is over, and etcd knows."""
        return self.phase in ENDED

    def enlist(self, member: Member) -> Member:
        """Take a member into the book, or find the one of that name."""
        known = self.members.setdefault(member.name, member)
        if known is member:
            self.enlisted += 1
            member.number = self.enlisted
        return self.by_node.setdefault(known.node, {}).setdefault(known.name, known)

    def strike(self, member: Member) -> None:
        """Take a member out of the book."""
        del self.members[member.name]
        del self.by_node[member.node][member.name]
        self.ghosts.pop(member.name, None)
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
            self.ghosts[member.name] = member
        elif self.ghosts:
            self.ghosts.pop(member.name, None)

    def state(self, phase: JobPhase | None = None, reason: str | None = None) -> JobState:
        """What etcd keeps of it. One that is ending has ended, and one whose ranks are to return has
        let them, whatever else is told of it meanwhile."""
        if phase is None and self.ending is not None:
            phase, reason = self.ending.phase, self.ending.reason
        elif phase is None and self.letting_go[0]:
            phase, reason = JobPhase.LEAVING, self.letting_go[1]
        return JobState(
            self.name,
            phase or self.phase,
            shortened(self.reason if reason is None else reason),
            self.incidents,
            tuple(self.failures_seen.items()),
            self.faults,
            self.skips,
            self.pause,
            self.cut_words,
            self.planned,
        )

    @property
    def failed_times(self) -> int:
        """How many of its incidents were failures."""
        return self.incidents - self.planned

    def sat_in(self, generation: Generation, member: str) -> bool:
        """Whether this member has a seat of the generation."""
        if self.roll[0] != generation.number or len(self.roll[1]) != len(generation.seats):
            self.roll = generation.number, frozenset(seat.member for seat in generation.seats)
        return member in self.roll[1]

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
