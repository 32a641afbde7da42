"""Build the relation of who waits for whom, and find where it ends.

A device carries out operations mostly in the order of their calls. So the oldest open operation of a rank,
its head, holds up everything behind it. A rank waits

- for every rank that has not called an operation that the rank has open;
- in its head also for every rank that has called it, but is held up by an older operation of its own.

Over gloo, transfers pass in any order: only those that the script waits for hold up a rank.

A rank whose head has ended on its peers waits for nobody: it alone does not complete it. Whom others wait
for and who waits for nobody is the root of a chain. A cycle is a deadlock: `cycles.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.records import HandleUse, Progress
from controlplane.analysis.flight_records.standing import Presence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightEntry
    from controlplane.analysis.flight_records.standing import RankRecords
    from controlplane.analysis.flight_records.transfers import TransferMatcher


class WaitKind(Enum):
    """Why a rank waits for another one."""

    NOT_CALLED = "it has not called it"
    HELD_UP = "an older operation of its own holds it up"
    DROPPED = "it has dropped the handle of its send"
    NOT_STARTED = "its device has not begun it"
    UNKNOWN = "it has no usable dump, or no record of it"


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank waits for another one in an operation. `lacking`: how many of the group's ranks it lacks."""

    waiter: int
    awaited: int
    kind: WaitKind
    group: int
    entry: FlightEntry  # the waiter's
    lacking: int
    size: int


@dataclass(slots=True)
class WaitGraph:
    """All waits. `unfinished`: by rank, its head that has ended on peers, and on which. `standstills`: heads
    that all ranks of a group have reached and none has completed, by (group, sequence)."""

    waits: list[Wait] = field(default_factory=list)
    unfinished: dict[int, tuple[int, FlightEntry, tuple[int, ...]]] = field(default_factory=dict)
    standstills: dict[tuple[int, int, bool], dict[int, FlightEntry]] = field(default_factory=dict)


def wait_graph(
    histories: dict[int, RankRecords], groups: JobGroups, transfers: TransferMatcher, roots: Sequence[int]
) -> WaitGraph:
    """Who waits for whom. `roots`: ranks known to be wrong by other evidence, which wait for nobody."""
    builder = _GraphBuilder(histories, groups, transfers, WaitGraph())
    for rank in sorted(histories):
        if rank not in roots:
            builder.add(rank)
    return builder.graph


@dataclass(frozen=True, slots=True)
class _GraphBuilder:
    histories: dict[int, RankRecords]
    groups: JobGroups
    transfers: TransferMatcher
    graph: WaitGraph
    known: dict[tuple[int, int], list[tuple[int, Presence]]] = field(default_factory=dict)
    at_heads: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def add(self, rank: int) -> None:
        """Add what one rank waits for."""
        history = self.histories[rank]
        head = history.head
        numbers = {each.number for _, each in head}
        waits: list[Wait] = []
        ended: tuple[int, FlightEntry, tuple[int, ...]] | None = None
        for group, entry in head:
            mine, peers = self._in_head(rank, group, entry)
            waits += mine
            if peers and not mine:
                ended = ended or (group, entry, peers)
        if ended and not waits:
            self.graph.unfinished[rank] = ended
            return
        for group, entry in history.open:
            if entry.number not in numbers and entry.handle is HandleUse.WAITED:
                waits += self._behind_head(rank, group, entry)
        if head and not waits:
            group, entry = head[0]
            key = group, entry.p2p_sequence if entry.transfer else entry.sequence, entry.transfer is None
            self.graph.standstills.setdefault(key, {})[rank] = entry
        self.graph.waits += waits

    def _in_head(self, rank: int, group: int, entry: FlightEntry) -> tuple[list[Wait], tuple[int, ...]]:
        """The waits in an operation at the head, and the peers on which it has ended."""
        if entry.transfer is not None:
            return self._transfer(rank, group, entry)
        found = self._standing(rank, group, entry)
        ended = tuple(each for each, presence in found if presence is Presence.ENDED)
        lacking = [each for each, presence in found if presence is Presence.NOT_CALLED]
        dark = [each for each, presence in found if presence is Presence.UNKNOWN]
        there = [each for each, presence in found if presence is Presence.OPEN]
        held = self._held(there, group, entry)
        if ended and not lacking:
            held = held if entry.operation in policy.ONE_SIDED else []
            return self._waits(rank, group, entry, held, WaitKind.HELD_UP), ended
        slow = [] if held or lacking else self._not_started(there, group, entry)
        return (
            self._waits(rank, group, entry, lacking, WaitKind.NOT_CALLED)
            + self._waits(rank, group, entry, held, WaitKind.HELD_UP)
            + self._waits(rank, group, entry, slow, WaitKind.NOT_STARTED)
            + self._waits(rank, group, entry, dark, WaitKind.UNKNOWN)
        ), ()

    def _behind_head(self, rank: int, group: int, entry: FlightEntry) -> list[Wait]:
        """The ranks that have not called an operation which is open behind the head."""
        if entry.transfer is not None:
            presence, _ = self.transfers.other_side(rank, entry)
            peer = self.transfers.peer(rank, entry)
            lacking = [peer] if peer is not None and presence is Presence.NOT_CALLED else []
        else:
            found = self._standing(rank, group, entry)
            lacking = [each for each, presence in found if presence is Presence.NOT_CALLED]
            if any(presence is Presence.ENDED for _, presence in found):
                return []
        return self._waits(rank, group, entry, lacking, WaitKind.NOT_CALLED)

    def _standing(self, rank: int, group: int, entry: FlightEntry) -> list[tuple[int, Presence]]:
        """Where the other ranks of the group stand in a collective."""
        key = group, entry.sequence
        if key not in self.known:
            self.known[key] = self._all_standing(group, entry.sequence)
        return [(other, presence) for other, presence in self.known[key] if other != rank]

    def _all_standing(self, group: int, sequence: int) -> list[tuple[int, Presence]]:
        """Where all ranks of the group stand in a collective.

        A rank without any record of the group is not taken to be absent when the collective has ended
        elsewhere, or fewer than half of the group are in it: it may have ended there, too."""
        found = []
        for other in self.groups.all[group].members:
            history = self.histories.get(other)
            found.append((other, history.presence(group, sequence) if history else Presence.UNKNOWN))
        there = sum(presence is Presence.OPEN for _, presence in found)
        if 2 * there >= len(found) and all(presence is not Presence.ENDED for _, presence in found):
            return found
        return [
            (other, presence)
            if presence is not Presence.NOT_CALLED or self._recorded(other, group)
            else (other, Presence.UNKNOWN)
            for other, presence in found
        ]

    def _recorded(self, rank: int, group: int) -> bool:
        """Whether it is known for certain how far the rank has come in a group."""
        history = self.histories[rank]
        return bool(history.collectives.get(group)) or history.whole or history.settled

    def _held(self, there: Sequence[int], group: int, entry: FlightEntry) -> list[int]:
        """Those that have called a collective and are held up by something older."""
        key = group, entry.sequence
        if key not in self.at_heads:
            self.at_heads[key] = frozenset(
                rank
                for rank in self.groups.all[group].members
                if rank in self.histories and self._is_head(rank, group, entry.sequence)
            )
        return [other for other in there if other not in self.at_heads[key]]

    def _is_head(self, rank: int, group: int, sequence: int) -> bool:
        return any(
            its == group and each.transfer is None and each.sequence == sequence
            for its, each in self.histories[rank].head
        )

    def _not_started(self, there: Sequence[int], group: int, entry: FlightEntry) -> list[int]:
        """Those whose device has not begun what it has begun on this rank; only where beginnings are
        recorded."""
        if entry.progress is not Progress.STARTED:
            return []
        return [
            other
            for other in there
            if all(
                each.progress is Progress.SCHEDULED
                for each in self.histories[other].collectives[group][entry.sequence]
            )
        ]

    def _transfer(self, rank: int, group: int, entry: FlightEntry) -> tuple[list[Wait], tuple[int, ...]]:
        peer = self.transfers.peer(rank, entry)
        if peer is None:
            return [], ()
        presence, other = self.transfers.other_side(rank, entry)
        if presence is Presence.ENDED:
            return [], (peer,)
        if presence is Presence.OPEN and other is not None:
            if other.handle is HandleUse.DROPPED:
                return self._waits(rank, group, entry, [peer], WaitKind.DROPPED), ()
            at_head = any(each.number == other.number for _, each in self.histories[peer].head)
            held = [] if at_head or other.handle is HandleUse.HELD else [peer]
            return self._waits(rank, group, entry, held, WaitKind.HELD_UP), ()
        kind = WaitKind.NOT_CALLED if presence is Presence.NOT_CALLED else WaitKind.UNKNOWN
        return self._waits(rank, group, entry, [peer], kind), ()

    def _waits(
        self, rank: int, group: int, entry: FlightEntry, awaited: Sequence[int], kind: WaitKind
    ) -> list[Wait]:
        size = len(self.groups.all[group].members) if entry.transfer is None else 2
        return [Wait(rank, each, kind, group, entry, len(awaited), size) for each in awaited]
