"""Put what is held against a rank into words, with the records behind it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.mismatches import told
from controlplane.analysis.flight_records.waits import Wait, WaitKind
from controlplane.analysis.flight_records.wording import at, ranked
from controlplane.core.state.findings import Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from controlplane.analysis.flight_records.cycles import WaitRoot
    from controlplane.analysis.flight_records.groups import JobGroups
    from controlplane.analysis.flight_records.mismatches import DifferentCall
    from controlplane.analysis.flight_records.records import FlightEntry
    from controlplane.analysis.flight_records.rhythm import CallRhythm
    from controlplane.analysis.flight_records.standing import RankRecords
    from controlplane.analysis.flight_records.waits import WaitGraph

Evidence = tuple[tuple[str, float | str], ...]

ADVICE = {
    "not_arrived": "Look at this rank's stack and log at that time: it was not in the operation that the "
    "others were in. A held interpreter, an exception or a data loader that waits are usual.",
    "not_started": "Look at this rank's device: what was launched before keeps it busy, and is in no record.",
    "unfinished": "Look at this rank's device and its log (Xid, ECC, NVLink): its peers completed what it "
    "did not.",
    "other_collective": "Look at the line given: a branch that depends on the rank or on data.",
    "other_shape": "Look at the line given: a last batch, an unused parameter, a size that depends on the "
    "rank.",
    "other_dtype": "Look at the line given: autocast or a cast that not all ranks make.",
    "other_order": "Make all ranks call these operations in the same order.",
    "left_out": "Look at the line given: a branch around this send or receive that depends on the rank or on "
    "data.",
    "no_dump": "Look whether this process died (exit code, kernel log, out of memory), and at its host.",
    "deadlock": "Make all ranks call these operations in the same order.",
    "in_progress": "If the job stands still, look at network and devices: no rank is behind another one.",
}
"""What to do, by kind of finding."""


@dataclass(frozen=True, slots=True)
class BlamedRank:
    """A rank, the operation in which it shows, and what is held against it."""

    rank: int
    kind: str
    group: str
    group_ranks: tuple[int, ...]
    operation: str
    sequence: int
    reason: str
    confidence: float
    evidence: Evidence = ()


@dataclass(frozen=True, slots=True)
class FlightCase:
    """All that is known before anybody is blamed: the ranks' histories, their groups, who waits for whom, and
    what each rank calls in its rounds."""

    past: dict[int, RankRecords]
    groups: JobGroups
    graph: WaitGraph
    rhythm: CallRhythm

    def place(self, group: int, entry: FlightEntry) -> str:
        """An operation in words: `all_reduce 5 of default_pg (ranks 0, 1), at train.py:41 (step)`."""
        its = self.groups.all[group]
        number = entry.p2p_sequence if entry.transfer is not None else entry.sequence
        return f"{entry.operation} {number} of {its.label} ({ranked(its.members)}){at(entry)}"

    def charge(
        self,
        rank: int,
        kind: str,
        where: tuple[int, FlightEntry],
        reason: str,
        *,
        confidence: float,
        evidence: Evidence = (),
    ) -> BlamedRank:
        """What is held against a rank in an operation, given by group and entry."""
        group, entry = where
        its = self.groups.all[group]
        factor = 1.0 if its.sure else policy.UNSURE_GROUP
        return BlamedRank(
            rank,
            kind,
            its.label,
            its.members,
            entry.operation,
            entry.p2p_sequence if entry.transfer is not None else entry.sequence,
            reason,
            factor * confidence,
            (*evidence, *((("source", entry.source),) if entry.source else ())),
        )

    def waiting_for(self, rank: int, waits: Sequence[Wait]) -> list[int]:
        """The ranks that wait for this one, sorted."""
        return sorted(Counter(each.waiter for each in waits if each.awaited == rank))


def by_difference(call: DifferentCall, case: FlightCase) -> Iterator[BlamedRank]:
    """The ranks that called something else than the majority; all of them, where there is none."""
    for rank in call.ranks:
        usual: Evidence = (("others_source", call.usual.source),) if call.usual.source else ()
        entry = call.entries[rank]
        reason = f"in {case.place(call.group, entry)} {told(call, rank)}"
        evidence: Evidence = (("agreeing_count", float(len(call.usual_ranks))), *usual)
        where = call.group, entry
        yield case.charge(rank, call.kind, where, reason, confidence=policy.CERTAIN, evidence=evidence)


def by_unfinished(case: FlightCase, explained: Collection[tuple[int, int]]) -> Iterator[BlamedRank]:
    """The ranks that have not completed what their peers have.

    `explained`: operations (group, sequence) in which ranks went apart. That one of them has ended somewhere
    proves nothing: it may have failed there."""
    for rank, (group, entry, peers) in sorted(case.graph.unfinished.items()):
        if (group, entry.sequence) in explained and entry.transfer is None:
            continue
        waits = [each for each in case.graph.waits if each.awaited == rank]
        waiting = case.waiting_for(rank, waits)
        more = f"; {ranked(waiting)} {_verb(waiting)} for it" if waiting else ""
        if absent := [each for each in waits if each.kind is WaitKind.NOT_CALLED]:
            shown = _clearest(absent)
            more += f", in {case.place(shown.group, shown.entry)}, {_lacks(shown)}"
        reason = (
            f"it has {entry.progress.value} {case.place(group, entry)} and never completed it, while it has "
            f"completed on {ranked(peers)}: its device stopped, or what records completion did{more}"
        )
        evidence: Evidence = (
            ("completed_elsewhere_count", float(len(peers))),
            ("waiting_count", float(len(waiting))),
        )
        where = group, entry
        yield case.charge(rank, "unfinished", where, reason, confidence=policy.UNFINISHED, evidence=evidence)


def by_root(root: WaitRoot, case: FlightCase) -> list[BlamedRank]:
    """The ranks at which waits end."""
    return [_at_end(rank, root, case) for rank in root.ranks]


def _at_end(rank: int, root: WaitRoot, case: FlightCase) -> BlamedRank:
    waits = [each for each in root.waits if each.awaited == rank]
    if root.how == "left_out":
        return _left_out(rank, waits, case)
    shown, waiting = _clearest(waits), case.waiting_for(rank, waits)
    why = _awaited(case, waiting, shown) + "; "
    if root.how in ("cycle", "order"):
        kind = "deadlock" if root.how == "cycle" else "other_order"
        confidence = policy.BY_ORDER
        why += f"it waits for them in turn{_open_at(case, rank)}"
        why += ", and is the minority" if root.how == "order" else ": a deadlock"
    else:
        kind = "not_started" if shown.kind is WaitKind.NOT_STARTED else "not_arrived"
        confidence = policy.WAITING_SEND if root.how == "send" else policy.CERTAIN
        why += _last(case, rank, shown.group)
    last = case.past[rank].dump.entries[-1:]
    evidence: Evidence = (
        ("waiting_count", float(len(waiting))),
        *(("last_source", each.source) for each in last if each.source),
    )
    where = shown.group, shown.entry
    return case.charge(rank, kind, where, why, confidence=confidence, evidence=evidence)


def _left_out(rank: int, waits: Sequence[Wait], case: FlightCase) -> BlamedRank:
    """A rank that left out a transfer which it called in each of its rounds before."""
    shown, waiting = _clearest(waits), case.waiting_for(rank, waits)
    usual = case.rhythm.left_out(shown)
    assert usual is not None  # that is what makes it this kind of root
    why = (
        f"{_awaited(case, waiting, shown)}; it called that in each of its rounds before{at(usual)}, left it "
        f"out this time and went on{_open_at(case, rank)}"
    )
    evidence: Evidence = (
        ("waiting_count", float(len(waiting))),
        *((("left_out_source", usual.source),) if usual.source else ()),
    )
    where = shown.group, shown.entry
    return case.charge(rank, "left_out", where, why, confidence=policy.BY_RHYTHM, evidence=evidence)


def _clearest(waits: Sequence[Wait]) -> Wait:
    """The wait that most ranks share, the oldest of them."""

    def key(wait: Wait) -> tuple[int, int]:
        return wait.group, wait.entry.p2p_sequence if wait.entry.transfer else wait.entry.sequence

    counts = Counter(map(key, waits))
    return min(waits, key=lambda each: (-counts[key(each)], each.entry.created_ns, each.waiter))


def _awaited(case: FlightCase, waiting: Sequence[int], shown: Wait) -> str:
    where = case.place(shown.group, shown.entry)
    return f"{ranked(waiting)} {_verb(waiting)} for it: {where}, {_lacks(shown)}"


def _verb(waiting: Sequence[int]) -> str:
    return "waits" if len(waiting) == 1 else "wait"


_LACKS = {
    WaitKind.NOT_CALLED: "which it has not called",
    WaitKind.HELD_UP: "which an older operation of its own holds up",
    WaitKind.DROPPED: "whose other end it has called without keeping the handle, so that gloo gave it up",
    WaitKind.NOT_STARTED: "which has begun there and not on its device",
    WaitKind.UNKNOWN: "and it is not known whether it has called that",
}


def _lacks(wait: Wait) -> str:
    if wait.kind is WaitKind.NOT_CALLED and wait.entry.transfer is not None:
        return f"whose {'receive' if wait.entry.transfer.sends else 'send'} it has not called"
    return _LACKS[wait.kind]


def _open_at(case: FlightCase, rank: int) -> str:
    head = case.past[rank].head
    return f" in {case.place(*head[0])}" if head else ""


def _last(case: FlightCase, rank: int, group: int) -> str:
    """What the rank did last, by its own records."""
    history = case.past[rank]
    if not history.dump.entries:
        return "its dump has no open operation, and by torch's counters all that it enqueued has completed"
    last = history.dump.entries[-1]
    its = case.groups.index[rank, last.group]
    words = f"its last record is {case.place(its, last)} ({last.progress.value})"
    span = history.spans.get(group)
    return f"{words}, and its newest collective there is {span[1]}" if span and its != group else words


def of_standstill(key: tuple[int, int, bool], case: FlightCase) -> Iterator[BlamedRank]:
    """The ranks of an operation that all of them have reached and none has completed, while others wait."""
    for rank, entry in sorted(case.graph.standstills[key].items()):
        reason = (
            f"all ranks of {case.place(key[0], entry)} are in it, none has completed it, and "
            "other ranks wait for them: it is one of their devices, or the network between them, and the "
            "records do not show which"
        )
        yield case.charge(rank, "in_progress", (key[0], entry), reason, confidence=policy.CERTAIN)


def unknown(rank: int, waits: Sequence[Wait], case: FlightCase, missing: str) -> BlamedRank:
    """A rank of which it is not known whether it arrived where others wait."""
    mine = [each for each in waits if each.awaited == rank]
    shown, waiting = _clearest(mine), case.waiting_for(rank, mine)
    reason = f"{_awaited(case, waiting, shown)}: {missing or 'its records do not reach there'}"
    evidence: Evidence = (("waiting_count", float(len(waiting))),)
    where = shown.group, shown.entry
    return case.charge(rank, "no_dump", where, reason, confidence=policy.BY_ABSENCE, evidence=evidence)


def by_absence(charge: BlamedRank, waiting: int) -> BlamedRank:
    """The rank without records at which all waits end."""
    return dataclasses.replace(
        charge,
        reason=f"{charge.reason}. All {waiting} ranks that wait do so for it, directly or through others, "
        "and for nobody else, so it is taken to be gone; that it had arrived and only its dump is lost "
        "cannot be excluded",
    )


def findings(culprits: Sequence[BlamedRank], case: FlightCase) -> Iterator[Finding]:
    """A finding for each culprit; if there is none, one for each operation that all of a group are in."""
    for each in culprits:
        yield Finding(
            each.kind,
            Level.CRITICAL,
            f"rank {each.rank}",
            each.reason,
            place=(("rank", each.rank),),
            confidence=each.confidence,
            evidence=(
                ("group", each.group),
                ("operation", each.operation),
                ("sequence", float(each.sequence)),
                *each.evidence,
            ),
            recommendations=(Recommendation(ADVICE[each.kind]),),
        )
    if not culprits:
        yield from _in_progress(case)


def _in_progress(case: FlightCase) -> Iterator[Finding]:
    """One finding for each operation that all of its ranks are in."""
    for (group, _, collective), its in case.graph.standstills.items():
        rank, entry = min(its.items())
        if len(its) == (len(case.groups.all[group].members) if collective else 2):
            yield Finding(
                "in_progress",
                Level.DEGRADED,
                case.groups.all[group].label,
                f"all ranks of {case.place(group, entry)} are in it, and nobody is behind",
                place=(("rank", None),),
                confidence=policy.BY_ABSENCE,
                evidence=(("operation", entry.operation), ("first_rank", float(rank))),
                recommendations=(Recommendation(ADVICE["in_progress"]),),
            )
