"""Keep an index from rank to member, with sets of ranks by status, up to date incrementally.

Recovery asks again and again which ranks are dead, at the barrier, or training, in jobs of ten thousand
nodes. So no question walks all seats: each change of a member updates the sets of its rank only, and a
decision costs O(changed ranks). Everything here follows from the seats and the members' records;
`RankIndex.check` compares it with an index built anew.

A seat is the place of one rank: which member, on which node. `RankIndex` holds the seats of a job, `RankSets`
the rank sets. Ranks whose members have changed are collected in `_unsure`; the sets are updated when one of
them is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from controlplane.core.records.words import ASKED, IN_GENERATION, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.model import Placement
    from controlplane.core.state.member import Member

Ranks = dict[int, None]
"""A set of ranks that keeps its order: the core never iterates over a `set`, whose order may differ per
process."""

_MANY = 4
"""When more than one rank in this many has changed, whole sets are rebuilt: that is cheaper than to update
them rank by rank."""


class RankSets:
    """The rank sets of a job. Those about a generation are about the one with the number `number`.

    Each rank has a bit mask, with one bit per set that it is in: comparing the old and the new mask shows
    which sets change."""

    def __init__(self, number: int = 0, ranks: int = 0) -> None:
        self.dead: Ranks = {}  # judged dead
        self.unreported: Ranks = {}  # their agents have not reported them yet
        self.asked: Ranks = {}  # alive and ordered, their scripts do not run yet
        self.inside: Ranks = {}  # in some generation, dead or alive
        self.ready: Ranks = {}  # READY: at the barrier
        self.uncalm: Ranks = {}  # all but living ranks that train
        self.unfinished: Ranks = {}  # their function has not returned
        self.roomless: Ranks = {}  # alive, without shared memory for snapshots
        self.entered: Ranks = {}  # have been given the generation
        self.settled: Ranks = {}  # train in the generation, or have finished
        self.suspects: Ranks = {}  # are back at the barrier, or report a failure: the generation is broken
        self.begun: Ranks = {}  # have completed a step in the generation
        self.over: Ranks = {}  # have finished, and their processes have ended as they should
        self.number = number
        self._rank_sets = (
            self.dead, self.unreported, self.asked, self.inside, self.ready, self.uncalm, self.unfinished,
            self.roomless, self.entered, self.settled, self.suspects, self.begun, self.over,
        )  # fmt: skip
        self._marks = [0] * ranks  # by rank: a bit for every set that it is in, in the order of `_rank_sets`

    def all(self) -> tuple[list[int], ...]:
        """The ranks of every set, in the order of the bits."""
        return tuple(sorted(rank_set) for rank_set in self._rank_sets)

    def note(self, rank: int, member: Member) -> None:
        """Update the sets for the member of this rank."""
        marks = self._marks_of(member)
        changed, self._marks[rank] = self._marks[rank] ^ marks, marks
        while changed:
            bit = changed & -changed
            rank_set = self._rank_sets[bit.bit_length() - 1]
            if marks & bit:
                rank_set[rank] = None
            else:
                del rank_set[rank]
            changed ^= bit

    def note_all(self, members_by_rank: Iterable[tuple[int, Member]]) -> None:
        """Update the sets for many ranks: write anew each set in which anything has changed."""
        marks, changed = self._marks, 0
        for rank, member in members_by_rank:
            old, new = marks[rank], self._marks_of(member)
            marks[rank] = new
            changed |= old ^ new
        kinds = dict.fromkeys(marks)
        for index, rank_set in enumerate(self._rank_sets):
            bit = 1 << index
            if not changed & bit:
                continue
            rank_set.clear()
            if all(kind & bit for kind in kinds):
                rank_set.update(dict.fromkeys(range(len(marks))))
            elif any(kind & bit for kind in kinds):
                rank_set.update(dict.fromkeys([rank for rank, own in enumerate(marks) if own & bit]))

    def _marks_of(self, member: Member) -> int:
        """The bit mask of a member."""
        status, dead, number = member.status, member.failure is not None, self.number
        if status is None:
            return _marks_outside_generations(None, dead, member.done) | (
                _BEGUN if member.started >= number else 0
            )
        phase = status.phase
        marks = _marks_outside_generations(phase, dead, member.done)
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
        """A new generation has this number. Members that report an older one are in none of its sets."""
        self.number = number
        for rank_set in (self.entered, self.settled, self.suspects, self.begun):
            rank_set.clear()
        self._marks = [marks & ~_OF_GENERATION for marks in self._marks]
        for rank, member in enumerate(seated):
            status = member.status
            if member.done or member.started >= number or (status and status.generation >= number):
                self.note(rank, member)


_ROOMLESS, _ENTERED, _SETTLED, _SUSPECT, _BEGUN, _OVER = (1 << bit for bit in range(7, 13))
_OF_GENERATION = _ENTERED | _SETTLED | _SUSPECT | _BEGUN
_WORKING = (MemberPhase.RUNNING, MemberPhase.FORMING)


@cache
def _marks_outside_generations(phase: MemberPhase | None, dead: bool, done: bool) -> int:
    """The bits that do not depend on a generation. `phase`: None before the agent has reported the member."""
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


class RankIndex:
    """The seats of a job, by rank, without gaps."""

    def __init__(self) -> None:
        self._rows: list[Placement] = []
        self._members: list[Member] = []
        self._seats: tuple[Placement, ...] | None = None  # cache of `seats`
        self._nodes: tuple[str, ...] | None = None  # cache of `nodes`
        self._on: dict[str, Ranks] = {}  # node -> its ranks, ascending
        self.version = 0  # grows with every change of a seat
        self._rank_sets = RankSets()
        self._unsure: Ranks = {}  # ranks whose members have changed since the sets were updated

    def sit(self, seats: Iterable[Placement], members: dict[str, Member]) -> None:
        """Replace all seats. Every member in them must be in `members`."""
        self._rows = list(seats)
        self._members = [members[seat.member] for seat in self._rows]
        self._on = {}
        for rank, seat in enumerate(self._rows):
            self._on.setdefault(seat.node, {})[rank] = None
        self._seats = self._nodes = None
        self.version += 1
        self._unsure = {}
        self._rank_sets = RankSets(self._rank_sets.number, len(self._rows))
        self._rank_sets.note_all(enumerate(self._members))

    def put(self, seat: Placement, member: Member) -> None:
        """Put another member into one seat, perhaps on another node."""
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
        """Note that this member's record has changed."""
        rank = member.rank
        if 0 <= rank < len(self._members) and self._members[rank] is member:
            self._unsure[rank] = None

    def turn(self, number: int) -> None:
        """Make the generation of this number the one that the rank sets are about."""
        self.rank_sets.turn(number, self._members)

    @property
    def rank_sets(self) -> RankSets:
        """The rank sets, up to date."""
        if self._unsure:
            unsure, self._unsure = self._unsure, {}
            if len(unsure) > len(self._members) // _MANY:
                self._rank_sets.note_all((rank, self._members[rank]) for rank in unsure)
                return self._rank_sets
            for rank in unsure:
                self._rank_sets.note(rank, self._members[rank])
        return self._rank_sets

    def holds(self, member: Member) -> bool:
        """Whether this member has a seat."""
        rank = member.rank
        return 0 <= rank < len(self._members) and self._members[rank] is member

    @property
    def seats(self) -> tuple[Placement, ...]:
        """All seats, by rank."""
        if self._seats is None:
            self._seats = tuple(self._rows)
        return self._seats

    @property
    def members(self) -> Sequence[Member]:
        """The seated members, by rank."""
        return self._members

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the seats, each once, in rank order."""
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
        """The seats on one node, by rank."""
        return [self._rows[rank] for rank in self._on.get(node, ())]

    def at(self, ranks: Iterable[int]) -> list[Member]:
        """The members of these ranks, by rank."""
        return [self._members[rank] for rank in sorted(ranks)]

    def check(self) -> None:
        """Raise AssertionError when anything differs from an index built anew."""
        fresh = RankIndex()
        fresh.turn(self.rank_sets.number)
        fresh.sit(self._rows, {member.name: member for member in self._members})
        assert self.seats == fresh.seats and self.nodes == fresh.nodes, "the seats are kept wrongly"
        assert (
            list(self._on)
            and {n: list(r) for n, r in self._on.items()} == {n: list(r) for n, r in fresh._on.items()}
        ) or not self._rows, "seats by node are off"
        assert self.rank_sets.all() == fresh.rank_sets.all(), "a rank set is kept wrongly"
