"""Say where each rank stands in each operation: within it, past it, not there yet, or not known.

torch keeps only the newest records (a ring), and may dump only what has not ended. So a missing record has
three meanings. Before the oldest record of the group: overwritten, the rank is past it. Behind the newest
one: the rank has not called it. No record of the group at all: it has never used it, if the ring holds
everything since the start; it has nothing open there, if nothing open can have been overwritten; else nobody
knows, unless torch's counters say it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.records import HandleUse, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightDump, FlightEntry


class Presence(Enum):
    """Where a rank stands in one operation."""

    OPEN = "open"
    ENDED = "ended"
    NOT_CALLED = "not called"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class RankRecords:
    """The records of one rank, by group and sequence. `whole`: nothing was overwritten or left out.
    `active_only`: ended operations were left out."""

    rank: int
    dump: FlightDump
    whole: bool
    active_only: bool
    collectives: defaultdict[int, dict[int, list[FlightEntry]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    open: list[tuple[int, FlightEntry]] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)  # oldest and newest sequence by group

    @property
    def head(self) -> list[tuple[int, FlightEntry]]:
        """The oldest open operation that can hold up others, with what was launched together with it;
        nothing: there is none. A transfer that the script does not wait for holds up nothing."""
        blocking = [(its, each) for its, each in self.open if each.handle is HandleUse.WAITED]
        if not blocking:
            return []
        group, first = blocking[0]
        batch = first.sequence, first.p2p_sequence, first.transfer is None
        return [
            (its, each)
            for its, each in blocking
            if its == group and (each.sequence, each.p2p_sequence, each.transfer is None) == batch
        ]

    @property
    def settled(self) -> bool:
        """Whether torch's counters prove that nothing is open: all that was enqueued has completed."""
        counters = self.dump.counters.values()
        return bool(counters) and all(each.completed >= each.enqueued for each in counters)

    def presence(self, group: int, sequence: int) -> Presence:
        """Where the rank stands in a collective."""
        known = self.collectives.get(group)  # get: looking makes no entry
        if not known:
            return self._without_records(sequence)
        if sequence in known:
            is_open = any(each.open for each in known[sequence])
            return Presence.OPEN if is_open else Presence.ENDED
        oldest, newest = self.spans[group]
        if sequence > newest:
            return Presence.NOT_CALLED
        if self.active_only or sequence < oldest:
            return Presence.ENDED
        return Presence.UNKNOWN

    def _without_records(self, sequence: int) -> Presence:
        """Where it stands in a collective of a group of which it has no record.

        torch's counters are by ids that only records connect with groups. So those of all groups without
        records are candidates. The group's own counter cannot be below the collective before this one, which
        others have completed: if no candidate is exactly there, the rank may be past it."""
        if self.whole and self.dump.entries:
            return Presence.NOT_CALLED
        mapped = {each.pg_id for each in self.dump.entries}
        others = [each for pg_id, each in self.dump.counters.items() if pg_id not in mapped]
        counts = [each.enqueued for each in others]
        if counts and max(counts) < sequence:
            return Presence.NOT_CALLED
        nothing_open = all(each.completed >= each.enqueued for each in others) and bool(others)
        if not nothing_open and not (self.active_only and self.dump.entries):
            return Presence.UNKNOWN
        before = not counts or sequence == 1 or sequence - 1 in counts
        return Presence.NOT_CALLED if before else Presence.UNKNOWN


def reopened(dumps: Sequence[FlightDump], groups: JobGroups) -> list[FlightDump]:
    """The dumps, with what cannot have succeeded as open again.

    A host's backend retires a collective also when it fails, because a peer died or did not come in time. It
    has failed if a rank of the group is known not to have called it."""
    newest: dict[int, dict[int, int]] = defaultdict(dict)
    for dump in dumps:
        whole = [each.number for each in dump.entries] == list(range(len(dump.entries)))
        mine = {group: 0 for (rank, _), group in groups.index.items() if whole and rank == dump.rank}
        for each in dump.entries:
            if each.transfer is None:
                group = groups.index[dump.rank, each.group]
                mine[group] = max(mine.get(group, 0), each.sequence)
        for group, sequence in mine.items():
            newest[group][dump.rank] = sequence
    least = {group: min(counts.values()) for group, counts in newest.items()}

    def corrected(dump: FlightDump, each: FlightEntry) -> FlightEntry:
        if each.sure_end or each.open or each.transfer is not None or each.operation in policy.ONE_SIDED:
            return each
        failed = each.sequence > least[groups.index[dump.rank, each.group]]
        return replace(each, progress=Progress.SCHEDULED) if failed else each

    return [replace(dump, entries=tuple(corrected(dump, each) for each in dump.entries)) for dump in dumps]


def moved(earlier: FlightDump, later: FlightDump) -> bool:
    """Whether the rank has called, or ended, anything between two readings of its records."""
    return _place(earlier) != _place(later)


def _place(dump: FlightDump) -> tuple[object, ...]:
    """Its newest call, and what it has open."""
    open_ones = tuple((each.number, each.progress, each.handle) for each in dump.entries if each.open)
    newest = dump.entries[-1].number if dump.entries else -1
    return newest, open_ones, sorted((key, each.completed) for key, each in dump.counters.items())


def histories(dumps: Sequence[FlightDump], groups: JobGroups) -> dict[int, RankRecords]:
    """The history of each rank."""
    active_only = _active_only(dumps)
    return {dump.rank: _history(dump, groups, active_only) for dump in dumps}


def _active_only(dumps: Sequence[FlightDump]) -> bool:
    """Whether these dumps leave out what has ended: no dump has an ended operation, or numbers are missing
    between its records, while a ring holds them without gaps."""
    entries = [each for dump in dumps for each in dump.entries]
    if not entries or any(not each.open for each in entries):
        return False
    return any(
        dump.entries and (dump.entries[0].number > 0 or dump.entries[-1].number >= len(dump.entries))
        for dump in dumps
    )


def _history(dump: FlightDump, groups: JobGroups, active_only: bool) -> RankRecords:
    numbers = [each.number for each in dump.entries]
    whole = numbers == list(range(len(numbers)))
    history = RankRecords(dump.rank, dump, whole, active_only)
    for each in dump.entries:
        group = groups.index[dump.rank, each.group]
        if each.open:
            history.open.append((group, each))
        if each.transfer is None:
            history.collectives[group].setdefault(each.sequence, []).append(each)
    history.spans = {group: (min(mine), max(mine)) for group, mine in history.collectives.items()}
    return history
