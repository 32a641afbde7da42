"""Who sits where, and who of them is dead, unheard, at the barrier: kept up as seats and members change.

Recovery asks these questions again and again, of jobs of ten thousand nodes: nothing here walks all seats
to answer one. All of it follows from the seats and the members' records; `Seating.check` proves that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.words import IN_GENERATION, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.job import Member
    from controlplane.core.model import Placement

Ranks = dict[int, None]
"""A set of ranks that keeps its order: the core never walks a `set`."""

_ASKED = (MemberPhase.LAUNCHED, MemberPhase.WARM)
_WORKED = (MemberPhase.FINISHED, MemberPhase.EXITED)


class Rolls:
    """The ranks of a job by how their members stand. Of the generation `number`: who is in it, who trains in
    it, who has come back from it, who has completed a step in it."""

    def __init__(self, number: int = 0) -> None:
        self.dead: Ranks = {}
        self.unheard: Ranks = {}  # their agents have said nothing of them
        self.asked: Ranks = {}  # living, ordered, and their scripts do not run yet
        self.inside: Ranks = {}  # dead or alive, in some generation
        self.ready: Ranks = {}
        self.uncalm: Ranks = {}  # anything but alive, at work, and training
        self.unfinished: Ranks = {}
        self.roomless: Ranks = {}  # living, without shared memory for snapshots
        self.number = number
        self.entered: Ranks = {}
        self.settled: Ranks = {}  # train in it, or have done their work
        self.suspects: Ranks = {}  # say that it is broken
        self.begun: Ranks = {}

    def all(self) -> dict[str, Ranks]:
        """Every roll by its name."""
        return {name: roll for name, roll in vars(self).items() if name != "number"}

    def note(self, rank: int, member: Member) -> None:
        """How the member of this rank stands now."""
        status, dead, phase = member.status, member.failure is not None, member.phase
        worked = phase is MemberPhase.FINISHED or (member.done and phase is MemberPhase.EXITED)
        _mark(self.dead, rank, dead)
        _mark(self.unheard, rank, status is None)
        _mark(self.asked, rank, not dead and phase in _ASKED)
        _mark(self.inside, rank, phase in IN_GENERATION)
        _mark(self.ready, rank, phase is MemberPhase.READY)
        _mark(self.uncalm, rank, dead or member.done or phase is not MemberPhase.RUNNING)
        _mark(self.unfinished, rank, not worked)
        _mark(self.roomless, rank, not dead and status is not None and bool(status.no_room))
        self._note_here(rank, member)

    def _note_here(self, rank: int, member: Member) -> None:
        """What has to do with the generation `number`."""
        status, phase, number = member.status, member.phase, self.number
        shown = -1 if status is None else status.generation
        own = member.generation if shown >= number else -1
        failed = status is not None and status.failure is not None
        working = phase is MemberPhase.RUNNING or phase is MemberPhase.FORMING
        trains = phase is MemberPhase.RUNNING and shown == number
        _mark(self.entered, rank, own >= number)
        _mark(self.settled, rank, member.done or trains)
        _mark(self.suspects, rank, own == number and (phase is MemberPhase.READY or (failed and working)))
        _mark(self.begun, rank, member.started >= number)

    def turn(self, number: int, seated: Sequence[Member]) -> None:
        """The job has this generation now. Whoever shows an older one has no part in it."""
        self.number = number
        self.entered, self.settled, self.suspects, self.begun = {}, {}, {}, {}
        for rank, member in enumerate(seated):
            status = member.status
            if member.done or member.started >= number or (status and status.generation >= number):
                self._note_here(rank, member)


def _mark(roll: Ranks, rank: int, there: bool) -> None:
    if there:
        roll[rank] = None
    elif rank in roll:
        del roll[rank]


class Seating:
    """The seats of a job, by rank; never with a gap."""

    def __init__(self) -> None:
        self._rows: list[Placement] = []
        self._members: list[Member] = []
        self._seats: tuple[Placement, ...] | None = None
        self._nodes: tuple[str, ...] | None = None
        self._on: dict[str, Ranks] = {}
        self.version = 0  # of who sits where
        self.rolls = Rolls()

    def sit(self, seats: Iterable[Placement], members: dict[str, Member]) -> None:
        """These seats from now on, all of them. Every member is known."""
        self._rows = list(seats)
        self._members = [members[seat.member] for seat in self._rows]
        self._on = {}
        for rank, seat in enumerate(self._rows):
            self._on.setdefault(seat.node, {})[rank] = None
        self._seats = self._nodes = None
        self.version += 1
        self.rolls = Rolls(self.rolls.number)
        for rank, member in enumerate(self._members):
            self.rolls.note(rank, member)

    def put(self, seat: Placement, member: Member) -> None:
        """Another member in one seat, perhaps on another node."""
        rank, old = seat.rank, self._rows[seat.rank]
        self._rows[rank], self._members[rank] = seat, member
        self._seats = None
        self.version += 1
        if old.node != seat.node:
            self._nodes = None
            del self._on[old.node][rank]
            if not self._on[old.node]:
                del self._on[old.node]
            here = self._on.setdefault(seat.node, {})
            here[rank] = None
            self._on[seat.node] = dict.fromkeys(sorted(here))
        self.rolls.note(rank, member)

    def changed(self, member: Member) -> None:
        """This member's record is another now."""
        if self.holds(member):
            self.rolls.note(member.rank, member)

    def holds(self, member: Member) -> bool:
        """Whether it has a seat."""
        rank = member.rank
        return 0 <= rank < len(self._members) and self._members[rank] is member

    @property
    def seats(self) -> tuple[Placement, ...]:
        """All of them, by rank."""
        if self._seats is None:
            self._seats = tuple(self._rows)
        return self._seats

    @property
    def members(self) -> Sequence[Member]:
        """Who sits in them, by rank."""
        return self._members

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their nodes, each once, in rank order."""
        if self._nodes is None:
            self._nodes = tuple(dict.fromkeys([seat.node for seat in self._rows]))
        return self._nodes

    def uses(self, node: str) -> bool:
        """Whether a seat is on this node."""
        return node in self._on

    def seat(self, rank: int) -> Placement:
        """The seat of this rank."""
        return self._rows[rank]

    def on(self, node: str) -> list[Placement]:
        """The seats of one node, by rank."""
        return [self._rows[rank] for rank in self._on.get(node, ())]

    def at(self, ranks: Iterable[int]) -> list[Member]:
        """The members of these ranks, by rank."""
        return [self._members[rank] for rank in sorted(ranks)]

    def check(self) -> None:
        """Raise AssertionError where a new look at everything would find another answer."""
        fresh = Seating()
        fresh.rolls = Rolls(self.rolls.number)
        fresh.sit(self._rows, {member.name: member for member in self._members})
        assert self.seats == fresh.seats and self.nodes == fresh.nodes, "the seats are kept wrongly"
        assert (
            list(self._on)
            and {n: list(r) for n, r in self._on.items()} == {n: list(r) for n, r in fresh._on.items()}
        ) or not self._rows, "seats by node are off"
        mine, theirs = self.rolls.all(), fresh.rolls.all()
        off = [name for name, roll in mine.items() if sorted(roll) != sorted(theirs[name])]
        assert not off, f"the rolls {', '.join(off)} are off"
