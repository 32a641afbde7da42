"""Diagnose a hang, or ranks that have gone apart, from the flight recorder dumps of a job: who is to blame.

Whoever called something else than the majority is to blame (`mismatches.py`). Otherwise the waits decide
(`waits.py`, `cycles.py`): who is waited for and waits for nobody. A rank that waits is never to blame,
however long it waits.

This answers the question of `controlplane.core.failures.arrivals` with other evidence, so the two share no
code. There, ranks that live report one counter for each group, beside their steps, stacks and silence, and
to name nobody is cheap: one asks again. Here there are the operations themselves, so that the relation of
waiting can be followed through the groups; and there is nobody left to ask."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import missing as gaps
from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.charges import (
    BlamedRank,
    FlightCase,
    by_absence,
    by_difference,
    by_root,
    by_unfinished,
    findings,
    of_standstill,
    unknown,
)
from controlplane.analysis.flight_records.cycles import roots
from controlplane.analysis.flight_records.groups import recognise
from controlplane.analysis.flight_records.mismatches import different_calls
from controlplane.analysis.flight_records.orders import CallOrders
from controlplane.analysis.flight_records.rhythm import CallRhythm
from controlplane.analysis.flight_records.standing import histories, reopened
from controlplane.analysis.flight_records.transfers import TransferMatcher
from controlplane.analysis.flight_records.waits import WaitKind, wait_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.analysis.flight_records.cycles import WaitRoot
    from controlplane.analysis.flight_records.mismatches import DifferentCall
    from controlplane.analysis.flight_records.records import DumpFolder, MissingDump
    from controlplane.analysis.flight_records.waits import Wait
    from controlplane.core.state.findings import Finding


@dataclass(frozen=True, slots=True)
class FlightDiagnosis:
    """Who is to blame. `undetermined`: ranks that may be to blame, which the records do not decide."""

    ranks: int
    culprits: tuple[BlamedRank, ...]
    undetermined: tuple[BlamedRank, ...]
    missing: tuple[MissingDump, ...]
    findings: tuple[Finding, ...]


def diagnose(folder: DumpFolder) -> FlightDiagnosis:
    """Judge the dumps of one job. Never fails: what does not fit together is undetermined."""
    present, stale = gaps.without_stale(folder.dumps)
    known = [dump.rank for dump in folder.dumps] + [each.rank for each in folder.unreadable]
    groups = recognise(present, known)
    missing = [*folder.unreadable, *stale, *gaps.empty(present), *gaps.absent(groups.world(), known)]
    usable = [dump for dump in present if dump.entries or dump.counters]
    past = histories(reopened(usable, groups), groups)
    differences = different_calls(past, groups)
    wrong = [rank for call in differences if call.settled for rank in call.ranks]
    transfers = TransferMatcher(past, groups)
    graph = wait_graph(past, groups, transfers, wrong)
    case = FlightCase(past, groups, graph, CallRhythm(past, groups, transfers))
    verdict = _judged(case, differences, missing)
    culprits = _in_order(verdict.culprits)
    return FlightDiagnosis(
        ranks=len(groups.world()),
        culprits=culprits,
        undetermined=_in_order(verdict.undetermined),
        missing=tuple(sorted(missing, key=lambda each: (each.rank, each.why))),
        findings=tuple(findings(culprits, case)),
    )


@dataclass(slots=True)
class _Verdict:
    """The ranks that are blamed so far, each once, and those that may be to blame."""

    culprits: dict[int, BlamedRank]
    undetermined: dict[int, BlamedRank]

    def blame(self, charges: Iterable[BlamedRank]) -> None:
        for each in charges:
            self.culprits.setdefault(each.rank, each)

    def suspect(self, charges: Iterable[BlamedRank]) -> None:
        for each in charges:
            self.undetermined.setdefault(each.rank, each)


def _judged(
    case: FlightCase, differences: Sequence[DifferentCall], missing: Sequence[MissingDump]
) -> _Verdict:
    """The culprits, and the ranks that may be to blame."""
    verdict = _Verdict({}, {})
    for call in differences:
        (verdict.blame if call.settled else verdict.suspect)(by_difference(call, case))
    explained = [(call.group, call.sequence) for call in differences]
    verdict.blame(by_unfinished(case, explained))
    minority = CallOrders(case.past, case.groups).minority
    for root in roots(case.graph.waits, minority, lambda wait: case.rhythm.left_out(wait) is not None):
        if root.how == "cycle":
            verdict.suspect(by_root(root, case))
        else:
            _judge_root(verdict, root, case, explained)
    _judge_unknown(verdict, case, missing)
    for rank in verdict.culprits:
        verdict.undetermined.pop(rank, None)
    return verdict


def _in_order(charges: dict[int, BlamedRank]) -> tuple[BlamedRank, ...]:
    return tuple(charges[rank] for rank in sorted(charges))


def _judge_root(
    verdict: _Verdict, root: WaitRoot, case: FlightCase, explained: Sequence[tuple[int, int]]
) -> None:
    """Judge where waits end: at ranks that are behind, or in an operation that nobody completes."""
    for charge in by_root(root, case):
        stands = next((key for key, its in case.graph.standstills.items() if charge.rank in its), None)
        waits_on = [each for each in case.graph.waits if each.waiter == charge.rank]
        if charge.rank in verdict.undetermined:
            continue
        if charge.kind == "not_started":
            verdict.suspect([charge])  # its device may be stuck, or just about to begin
            continue
        if root.how == "end" and waits_on:
            _judge_ahead(verdict, charge, waits_on, case)
        elif root.how != "end" or stands is None:
            verdict.blame([charge])
        elif stands[:2] not in explained:
            verdict.suspect(of_standstill(stands, case))


def _judge_ahead(verdict: _Verdict, charge: BlamedRank, waits_on: Sequence[Wait], case: FlightCase) -> None:
    """Judge a rank that others wait for, and that has an operation open of which its peers have no record.

    Either it has ended on them, and this rank alone does not complete it; or none of them has called it, and
    this rank called in another order than they. It is to blame both ways, if there are several peers that
    wait themselves; with one peer it may be either of the two. Of peers without dumps nothing is known."""
    peers = sorted(Counter(each.awaited for each in waits_on))
    if any(rank not in case.past for rank in peers):
        return
    if len(peers) > 1:
        verdict.blame([dataclasses.replace(charge, confidence=policy.BY_ABSENCE)])
    else:
        verdict.suspect([charge])


def _judge_unknown(verdict: _Verdict, case: FlightCase, missing: Sequence[MissingDump]) -> None:
    """Judge ranks of which it is not known whether they arrived.

    Such a rank is called a culprit only if all waits end at it and at nobody else, and several ranks wait for
    it. What cannot be excluded even then: it had arrived, its dump was lost, and the network stood still."""
    waits = [
        each
        for each in case.graph.waits
        if each.kind is WaitKind.UNKNOWN
        and (each.awaited not in case.past or not case.past[each.awaited].open)
    ]
    reasons = {each.rank: f"{each.why.value} dump: {each.reason}" for each in missing}
    awaited = sorted(Counter(each.awaited for each in waits))
    charges = [unknown(rank, waits, case, reasons.get(rank, "")) for rank in awaited]
    alone = len(charges) == 1 and not verdict.culprits and not verdict.undetermined
    waiting = len(Counter(each.waiter for each in case.graph.waits))
    if alone and waiting >= policy.WAITERS_MIN:
        verdict.blame([by_absence(charges[0], waiting)])
    else:
        verdict.suspect(charges)
