"""Recognise a rank that has left out a call which it makes in each of its rounds.

In a cycle of waiting through sends and receives there is no third rank to compare with. But a rank repeats
its calls, step after step, and so do its peers. Whoever left a call out shows that in its own records: they
repeat for several rounds; then one call is missing, and those that follow it come in its place. The rank that
waits for that call goes on with its own rounds as before. Were it the other way round (it waits once too
often), its records would show the break, and those of the awaited rank would not.

Collectives that are called in some rounds only (an evaluation, a snapshot) must not hide that. Where no
rounds show in all calls, they are looked for among the transfers, and the calls like that in which the rank
waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.waits import WaitKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.records import FlightEntry
    from controlplane.analysis.flight_records.standing import RankRecords
    from controlplane.analysis.flight_records.transfers import TransferMatcher
    from controlplane.analysis.flight_records.waits import Wait

_Call = tuple[int, str, tuple[int, int] | None]
"""Group, operation, and from whom to whom a transfer passes. A tag may differ in each round."""


class CallRhythm:
    """What each rank calls in each of its rounds."""

    def __init__(self, past: dict[int, RankRecords], groups: JobGroups, transfers: TransferMatcher) -> None:
        self._past, self._groups, self._transfers = past, groups, transfers

    def left_out(self, wait: Wait) -> FlightEntry | None:
        """The awaited rank's record of the call that it left out, as it was one round ago; None: its records
        do not show that it left out what is waited for."""
        missing, head = self._other_end(wait), self._past[wait.awaited].head
        if missing is None or not head or wait.kind is not WaitKind.NOT_CALLED:
            return None
        entries = _unbroken(self._past[wait.awaited].dump.entries)
        newest = self._call(wait.awaited, head[0][1])
        calls = [self._call(wait.awaited, each) for each in entries]
        needed = [
            place for place, call in enumerate(calls) if call[2] is not None or call in (newest, missing)
        ]
        for places in (range(len(calls)), needed):
            at = _missing_call([calls[place] for place in places], missing)
            if at is not None:
                return entries[places[at]]
        return None

    def _other_end(self, wait: Wait) -> _Call | None:
        """The call that is waited for; None: its other end is not recorded."""
        transfer, channel = wait.entry.transfer, self._transfers.channel(wait.waiter, wait.entry)
        if transfer is None:
            return wait.group, wait.entry.operation, None
        return None if channel is None else (wait.group, "recv" if transfer.sends else "send", channel[1:3])

    def _call(self, rank: int, entry: FlightEntry) -> _Call:
        channel = self._transfers.channel(rank, entry)
        ends = None if channel is None else channel[1:3]
        return self._groups.index[rank, entry.group], entry.operation, ends


def _unbroken(entries: Sequence[FlightEntry]) -> Sequence[FlightEntry]:
    """The newest entries without a gap in their numbers: older ones that are still open may lie before."""
    start = len(entries) - 1
    while start > 0 and entries[start - 1].number == entries[start].number - 1:
        start -= 1
    return entries[max(start, 0) :]


def _missing_call(calls: Sequence[_Call], missing: _Call) -> int | None:
    """Where, one round ago, the call stands that was left out of the newest round.

    With rounds of `length` calls, and the newest `after` calls behind the gap at `gap`: what lies before the
    gap repeats, what comes behind it is what followed `missing` one round ago, and such a round was never
    seen before."""
    for length in range(2, len(calls) // policy.ROUNDS_MIN + 1):
        for after in range(1, length):
            gap = len(calls) - after
            before = gap - length
            if before < (policy.ROUNDS_MIN - 1) * length:
                break
            if calls[before] != missing or calls[gap] == missing:
                continue
            if calls[gap:] != calls[before + 1 : before + 1 + after]:
                continue
            repeats = calls[gap - (policy.ROUNDS_MIN - 1) * length : gap]
            shifted = calls[gap - policy.ROUNDS_MIN * length : gap - length]
            if repeats == shifted and not _seen(calls, gap - length):
                return before
    return None


def _seen(calls: Sequence[_Call], start: int) -> bool:
    """Whether the calls from `start` to the end have come in this order before."""
    newest = calls[start:]
    return any(calls[at : at + len(newest)] == newest for at in range(start))
