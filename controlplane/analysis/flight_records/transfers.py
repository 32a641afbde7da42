"""Match sends with receives: within a group, from one rank to another, in order.

torch numbers the sends and receives of a group on each rank by itself, so both ends have the same number
only in a group of two. In larger groups both ends count what they exchange, if nothing was overwritten or
left out since the start; otherwise the oldest open send belongs to the oldest open receive. The SDK's records
of gloo have the tag, by which gloo matches, and one number for both ends of a transfer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records.standing import Presence

if TYPE_CHECKING:
    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightEntry, Transfer
    from controlplane.analysis.flight_records.standing import RankRecords

Channel = tuple[int, int, int, int]
"""(group, source, target, tag), in global ranks."""


class TransferMatcher:
    """All sends and receives of the job, by channel and side."""

    def __init__(self, histories: dict[int, RankRecords], groups: JobGroups) -> None:
        self._histories, self._groups = histories, groups
        self._sides: dict[tuple[Channel, bool], list[FlightEntry]] = defaultdict(list)
        self._places: dict[tuple[int, int], int] = {}
        self._pairs: dict[tuple[tuple[int, int, int], bool], dict[tuple[int, int], FlightEntry]]
        self._pairs = defaultdict(dict)  # between two ranks, by tag and place
        for rank, history in histories.items():
            for entry in history.dump.entries:
                channel = self.channel(rank, entry)
                if channel is not None and entry.transfer is not None:
                    side = self._sides[channel, entry.transfer.sends]
                    self._places[rank, entry.number] = len(side)
                    side.append(entry)
                    its = self._pairs[channel[:3], entry.transfer.sends]
                    its[entry.transfer.tag, entry.transfer.place] = entry

    def channel(self, rank: int, entry: FlightEntry) -> Channel | None:
        """Between whom an operation transfers; None: it is a collective, or the other end is not recorded."""
        if entry.transfer is None:
            return None
        group = self._groups.index[rank, entry.group]
        order = self._groups.order.get((rank, entry.group), ())
        source, target = (_global(order, each) for each in (entry.transfer.source, entry.transfer.target))
        other = target if entry.transfer.sends else source
        if other is None and len(order) == 2:
            other = order[0] if order[1] == rank else order[1]
        if other is None or other == rank:
            return None
        ends = (rank, other) if entry.transfer.sends else (other, rank)
        return (group, *ends, entry.transfer.tag)

    def peer(self, rank: int, entry: FlightEntry) -> int | None:
        """The rank at the other end, if it is recorded."""
        channel = self.channel(rank, entry)
        return None if channel is None else channel[2] if channel[1] == rank else channel[1]

    def other_side(self, rank: int, entry: FlightEntry) -> tuple[Presence, FlightEntry | None]:
        """Where the other end stands in this transfer, and its record. Of a peer without a dump: unknown."""
        channel, peer = self.channel(rank, entry), self.peer(rank, entry)
        if channel is None or peer not in self._histories or entry.transfer is None:
            return Presence.UNKNOWN, None
        theirs = self._sides[channel, not entry.transfer.sends]
        mine = self._sides[channel, entry.transfer.sends]
        if entry.transfer.place:
            return self._by_place(channel, entry.transfer, entry.number, self._histories[peer])
        both = self._histories[rank], self._histories[peer]
        if all(history.whole for history in both):
            return _found(theirs, self._places[rank, entry.number])
        if len(self._groups.all[channel[0]].members) == 2:
            return self._by_number(both[1], channel[0], mine, theirs, entry)
        waiting = [each for each in theirs if each.open]
        place = [each.number for each in mine if each.open].index(entry.number)
        return _found(waiting, place)

    def _by_place(
        self, channel: Channel, transfer: Transfer, number: int, peer: RankRecords
    ) -> tuple[Presence, FlightEntry | None]:
        """By tag and place, which both ends record. Without a record of it, the peer has not called it if its
        records reach back to an earlier transfer between the two."""
        mine = self._pairs[channel[:3], transfer.sends]
        theirs = self._pairs[channel[:3], not transfer.sends]
        if found := theirs.get((transfer.tag, transfer.place)):
            return (Presence.OPEN if found.open else Presence.ENDED), found
        if peer.whole or any(key in theirs for key, each in mine.items() if each.number < number):
            return Presence.NOT_CALLED, None
        later = any(tag == transfer.tag and place > transfer.place for tag, place in theirs)
        return (Presence.ENDED if later else Presence.UNKNOWN), None

    def _by_number(
        self,
        peer: RankRecords,
        group: int,
        mine: list[FlightEntry],
        theirs: list[FlightEntry],
        entry: FlightEntry,
    ) -> tuple[Presence, FlightEntry | None]:
        """In a group of two: by the number, and the place among those with that number (a batch)."""
        place = [each.number for each in mine if each.p2p_sequence == entry.p2p_sequence].index(entry.number)
        same = [each for each in theirs if each.p2p_sequence == entry.p2p_sequence]
        if len(same) > place:
            return _found(same, place)
        known = [
            each.p2p_sequence
            for each in peer.dump.entries
            if each.transfer is not None and self._groups.index[peer.rank, each.group] == group
        ]
        if not known:
            return (Presence.NOT_CALLED if peer.settled or peer.active_only else Presence.UNKNOWN), None
        if entry.p2p_sequence > max(known):
            return Presence.NOT_CALLED, None
        gone = peer.active_only or entry.p2p_sequence < min(known)
        return (Presence.ENDED if gone else Presence.NOT_CALLED), None


def _found(side: list[FlightEntry], place: int) -> tuple[Presence, FlightEntry | None]:
    if place >= len(side):
        return Presence.NOT_CALLED, None
    return (Presence.OPEN if side[place].open else Presence.ENDED), side[place]


def _global(order: tuple[int, ...], place: int | None) -> int | None:
    return order[place] if place is not None and place < len(order) else None
