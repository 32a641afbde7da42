"""Find the ranks that a hung generation waits for, from the stack reports of all its ranks. Pure.

Ranks that hang mostly wait for another one: in a collective that it has not entered, or for a step that it
has not ended. Several methods look for a rank that is behind, the most certain one first. Each names few
ranks or none: to blame the wrong rank costs a restart and leaves the hang in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.model import Collective, Standing

FRAMES_SHOWN = 3
"""Stack frames that a sentence shows."""
NAMED_MAX = 4
"""More ranks than this are counted in a sentence, not named."""


@dataclass(frozen=True, slots=True)
class ArrivalFinding:
    """The ranks that did not arrive where the others wait, and how that shows. No ranks: none can be
    blamed."""

    ranks: tuple[int, ...]
    reason: str


def find(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find the ranks that hold up the others, by the first of these that finds any: silence, collectives,
    steps, missing answers, open collectives, activity.

    A method that names more than half of the ranks is passed over: it may as well be the others. Silence
    is no guess and may name any number."""
    if len(reports) == 1:
        return ArrivalFinding((reports[0].rank,), "it is the only rank")
    silent = _by_silence(reports)
    if silent.ranks:
        return silent
    for look in (_by_collectives, _by_steps, _by_answers, _by_open_collectives, _by_activity):
        found = look(reports)
        if found.ranks and 2 * len(found.ranks) <= len(reports):
            return found
    return ArrivalFinding((), "no rank is behind the others: all stand at the same place")


def _by_silence(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find ranks whose processes live and do not answer: native code holds the interpreter's lock.

    Other ranks may seem to be behind only because they wait for such a rank, in a group that it does not
    report."""
    mute = [s for s in reports if s.silent_s > 0]
    if not mute:
        return ArrivalFinding((), "")
    longest = max(s.silent_s for s in mute)
    return ArrivalFinding(
        tuple(s.rank for s in mute), f"its interpreter has not answered for {longest:.1f} s"
    )


def _by_answers(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find ranks that report no collectives, while others do."""
    mute = [s.rank for s in reports if not s.collectives]
    answering = [s.rank for s in reports if s.collectives]
    return ArrivalFinding(
        tuple(mute) if answering else (), f"it does not answer, {_ranks(answering)} in a collective"
    )


def _by_collectives(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find ranks that are behind in some group and do not themselves wait, in another group, for a third
    rank.

    In each group the ranks in the newest collective wait for those in older ones."""
    behind: dict[int, str] = {}
    waiting: set[int] = set()
    for group in _groups(reports):
        entered = {s.rank: c for s in reports for c in s.collectives if c.group == group}
        last = max(entered.values(), key=lambda c: c.sequence)
        late = [rank for rank, c in entered.items() if c.sequence < last.sequence]
        there = [rank for rank, c in entered.items() if c.sequence == last.sequence]
        if late:
            waiting.update(there)
        for rank in late:
            words = f"{_ranks(there)} in collective {last.sequence}{_operation(last)} of group {group}"
            behind.setdefault(rank, f"it entered {entered[rank].sequence}, {words}")
    named = [rank for rank in behind if rank not in waiting]
    return ArrivalFinding(tuple(sorted(named)), behind[min(named)] if named else "")


def _groups(reports: Sequence[Standing]) -> list[str]:
    return list(dict.fromkeys(c.group for s in reports for c in s.collectives))


def _operation(collective: Collective) -> str:
    if not collective.operation:
        return ""
    size = f", {collective.bytes} bytes" if collective.bytes else ""
    return f" ({collective.operation}{size})"


def _by_steps(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find ranks that are in an earlier step than the newest one."""
    newest = max(s.step for s in reports)
    late = [s for s in reports if s.step < newest]
    ahead = [s.rank for s in reports if s.step == newest]
    reason = f"it is in step {late[0].step}, {_ranks(ahead)} in step {newest}" if late else ""
    return ArrivalFinding(tuple(s.rank for s in late), reason)


def _by_open_collectives(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find ranks that are in no collective while others are inside one. Only when every rank reports how
    many of its collectives have ended."""
    known = [s for s in reports if s.collectives and all(c.ended >= 0 for c in s.collectives)]
    if len(known) < len(reports):
        return ArrivalFinding((), "")
    outside = [s.rank for s in known if all(c.ended >= c.sequence for c in s.collectives)]
    within = [s.rank for s in known if s.rank not in outside]
    reason = f"it is in no collective, {_ranks(within)} within one"
    return ArrivalFinding(tuple(outside) if within else (), reason)


def _by_activity(reports: Sequence[Standing]) -> ArrivalFinding:
    """Find the rank that is the only one with its activity, while all others share another one."""
    doing: dict[str, list[int]] = {}
    for s in reports:
        doing.setdefault(s.activity, []).append(s.rank)
    alone = [activity for activity, ranks in doing.items() if len(ranks) == 1]
    if len(doing) != 2 or len(alone) != 1:
        return ArrivalFinding((), "")
    (other,) = (activity for activity in doing if activity != alone[0])
    return ArrivalFinding(tuple(doing[alone[0]]), f"it is in {alone[0]}, all others are in {other}")


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > NAMED_MAX:
        return f"{len(ranks)} ranks wait"
    if len(ranks) == 1:
        return f"rank {ranks[0]} waits"
    return f"ranks {', '.join(map(str, sorted(ranks)))} wait"


def described(report: Standing) -> str:
    """Where a rank stands, in a few words: `in step 20, forward, for 12.0 s at wait (train.py:41)`."""
    where = " < ".join(report.frames[:FRAMES_SHOWN])
    process = f"; {report.process}" if report.process else ""
    return f"in step {report.step}, {report.activity or 'running'}, for {report.since_s:.1f} s" + (
        f" at {where}{process}" if where else process
    )
