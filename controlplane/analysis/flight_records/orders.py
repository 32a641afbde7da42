"""Compare in which order ranks called two operations, to judge cycles of waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightEntry
    from controlplane.analysis.flight_records.standing import RankRecords
    from controlplane.analysis.flight_records.waits import Wait


class CallOrders:
    """The orders in which the ranks called their collectives."""

    def __init__(self, past: dict[int, RankRecords], groups: JobGroups) -> None:
        self._past, self._groups = past, groups

    def minority(self, wait: Wait) -> bool:
        """Whether the awaited rank called in another order than most.

        Two collectives are compared: that of the wait, and that in which the awaited rank waits itself. Those
        who belong to both groups are asked; who has called only one of them has called it first. Sends and
        receives have no third rank to compare with."""
        head = self._past[wait.awaited].head
        if not head or wait.entry.transfer is not None or head[0][1].transfer is not None:
            return False
        here, there = (wait.group, wait.entry), head[0]
        both = [
            rank for rank in self._groups.all[here[0]].members if rank in self._groups.all[there[0]].members
        ]
        votes = {rank: self._first(rank, here, there) for rank in both if rank in self._past}
        mine = votes.get(wait.awaited)
        alike = sum(vote == mine for vote in votes.values())
        other = sum(vote is not None and vote != mine for vote in votes.values())
        return mine is not None and alike < other

    def _first(self, rank: int, here: tuple[int, FlightEntry], there: tuple[int, FlightEntry]) -> bool | None:
        """Whether a rank called the first operation before the second; None: it has called neither, or its
        records do not show it."""
        numbers = []
        for group, entry in (here, there):
            known = self._past[rank].collectives.get(group, {})
            numbers.append(known[entry.sequence][0].number if entry.sequence in known else None)
        first, second = numbers
        if first is None or second is None:
            return None if first is None and second is None else second is None
        return first < second
