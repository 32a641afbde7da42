"""Who sits where, and who of them is dead, unheard, at the barrier: kept up as seats and members change.

Recovery asks these questions again and again, of jobs of ten thousand nodes: nothing here walks all seats
to answer one. All of it follows from the seats and the members' records; `Seating.check` proves that."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from controlplane.core.records.words import ASKED, IN_GENERATION, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.model import Placement
    from controlplane.core.state.member import Member

Ranks = dict[int, None]
"""A set of ranks that keeps its order: the core never walks a `set`."""

_MANY = 4
"""When more than one in so many has changed, the rolls are written anew."""


class Rolls:
    """The ranks of a job by how their members stand. Of the generation `number`: who is in it, who trains in
    it, who has come back from it, who has completed a step in it."""

    def __init__(self, number: int = 0, ranks: int = 0) -> None:
        self.dead: Ranks = {}
        self.unheard: Ranks = {}  # their agents have said nothing of them
        self.asked: Ranks = {}  # living, ordered, and their scripts do not run yet
        self.inside: Ranks = {}  # dead or alive, in some generation
        self.ready: Ranks = {}
        self.uncalm: Ranks = {}  # anything but alive, at work, and training
        self.unfinished: Ranks = {}
        self.roomless: Ranks = {}  # living, without shared memory for snapshots
        self.entered: Ranks = {}
        self.settled: Ranks = {}  # train in it, or have done their work
        self.suspects: Ranks = {}  # say that it is broken
        self.begun: Ranks = {}
        self.over: Ranks = {}  # have done their work, and their processes have ended as they should
        self.number = number
        self._rolls = (
            self.dead, self.unheard, self.asked, self.inside, self.ready, self.uncalm, self.unfinished,
            self.roomless, self.entered, self.settled, self.suspects, self.begun, self.over,
        )  # fmt: skip
        self._marks = [0] * ranks  # by rank: a bit for every roll that it is on

    def all(self) -> tuple[list[int], ...]:
        """Every roll, in the order of its bits."""
        return tuple(sorted(roll) for roll in self._rolls)

    def note(self, rank: int, member: Member) -> None:
        """How the member of this rank stands now."""
        marks = self._marks_of(member)
        changed, self._marks[rank] = self._marks[rank] ^ marks, marks
        while changed:
            bit = changed & -changed
            roll = self._rolls[bit.bit_length() - 1]
            if marks & bit:
                roll[rank] = None
            else:
                del roll[rank]
            changed ^= bit

    def note_all(self, stand: Iterable[tuple[int, Member]]) -> None:
        """How the members of so many ranks stand now that the rolls are written anew."""
        marks, changed = self._marks, 0
        for rank, member in stand:
            old, new = marks[rank], self._marks_of(member)
            marks[rank] = new
            changed |= old ^ new
        kinds = dict.fromkeys(marks)
        for index, roll in enumerate(self._rolls):
            bit = 1 << index
            if not changed & bit:
                continue
            roll.clear()
            if all(kind & bit for kind in kinds):
                roll.update(dict.fromkeys(range(len(marks))))
            elif any(kind & bit for kind in kinds):
                roll.update(dict.fromkeys([rank for rank, own in enumerate(marks) if own & bit]))

    def _marks_of(self, member: Member) -> int:
        status, dead, number = member.status, member.failure is not None, self.number
        if status is None:
            return _standing(None, dead, member.done) | (_BEGUN if member.started >= number else 0)
        phase = status.phase
        marks = _standing(phase, dead, member.done)
        if status.no_room and not dead:
            marks |= _ROOMLESS
        if status.generation >= number:
            own = member.generation
            if own >= number:
                marks |= _ENTERED
            if own == number and (phase is MemberPhase.READY or (status.failure and phase in _WORKING)):
                marks |= _SUSPECT
            if phase is MemberPhase.RUNNING and status.generation == number:
                marks |= _SETTLED
        return marks | _BEGUN if member.started >= number else marks

    def turn(self, number: int, seated: Sequence[Member]) -> None:
        """The job has this generation now. Whoever shows an older one has no part in it."""
        self.number = number
        for roll in (self.entered, self.settled, self.suspects, self.begun):
            roll.clear()
        self._marks = [marks & ~_OF_GENERATION for marks in self._marks]
        for rank, member in enumerate(seated):
            status = member.status
            if member.done or member.started >= number or (status and status.generation >= number):
                self.note(rank, member)


_ROOMLESS, _ENTERED, _SETTLED, _SUSPECT, _BEGUN, _OVER = (1 << bit for bit in range(7, 13))
_OF_GENERATION = _ENTERED | _SETTLED | _SUSPECT | _BEGUN
_WORKING = (MemberPhase.RUNNING, MemberPhase.FORMING)


@cache
def _standing(phase: MemberPhase | None, dead: bool, done: bool) -> int:
    """The bits that have nothing to do with a generation. `phase`: None while nothing was heard."""
    seen = phase or MemberPhase.LAUNCHED
    worked = seen is MemberPhase.FINISHED or (done and seen is MemberPhase.EXITED)
    there = (
        dead,
        phase is None,
        not dead and seen in ASKED,
        seen in IN_GENERATION,
        seen is MemberPhase.READY,
        dead or done or seen is not MemberPhase.RUNNING,
        not worked,
    )
    marks = sum(1 << bit for bit, holds in enumerate(there) if holds) | (_SETTLED if done else 0)
    return marks | (_OVER if done and not dead and seen is MemberPhase.EXITED else 0)


class Seating:
    """The seats of a job, by rank; never with a gap."""

    def __init__(self) -> None:
        self._rows: list[Placement] = []
        self._members: list[Member] = []
        self._seats: tuple[Placement, ...] | None = None
        self._nodes: tuple[str, ...] | None = None
        self._on: dict[str, Ranks] = {}
        self.version = 0  # of who sits where
        self._rolls = Rolls()
        self._unsure: Ranks = {}  # their members have changed since they were noted

    def sit(self, seats: Iterable[Placement], members: dict[str, Member]) -> None:
        """These seats from now on, all of them. Every member is known."""
        self._rows = list(seats)
        self._members = [members[seat.member] for seat in self._rows]
        self._on = {}
        for rank, seat in enumerate(self._rows):
            self._on.setdefault(seat.node, {})[rank] = None
        self._seats = self._nodes = None
        self.version += 1
        self._unsure = {}
        self._rolls = Rolls(self._rolls.number, len(self._rows))
        self._rolls.note_all(enumerate(self._members))

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
        self._unsure[rank] = None

    def changed(self, member: Member) -> None:
        """This member's record is another now."""
        rank = member.rank
        if 0 <= rank < len(self._members) and self._members[rank] is member:
            self._unsure[rank] = None

    def turn(self, number: int) -> None:
        """The job has the generation of this number now."""
        self.rolls.turn(number, self._members)

    @property
    def rolls(self) -> Rolls:
        """How all of them stand."""
        if self._unsure:
            unsure, self._unsure = self._unsure, {}
            if len(unsure) > len(self._members) // _MANY:
                self._rolls.note_all((rank, self._members[rank]) for rank in unsure)
                return self._rolls
            for rank in unsure:
                self._rolls.note(rank, self._members[rank])
        return self._rolls

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
        fresh.turn(self.rolls.number)
        fresh.sit(self._rows, {member.name: member for member in self._members})
        assert self.seats == fresh.seats and self.nodes == fresh.nodes, "the seats are kept wrongly"
        assert (
            list(self._on)
            and {n: list(r) for n, r in self._on.items()} == {n: list(r) for n, r in fresh._on.items()}
        ) or not self._rows, "seats by node are off"
        assert self.rolls.all() == fresh.rolls.all(), "a roll is kept wrongly"
