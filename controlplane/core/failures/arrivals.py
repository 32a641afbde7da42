"""Find the ranks that a hung generation waits for, from the stack reports of all its ranks. Pure.

Ranks that hang mostly wait for another one: in a collective that it has not entered, or for a step that it
has not ended. Several methods look for a rank that is behind, the most certain one first. Each names few
ranks or none: to blame the wrong rank costs a restart and leaves the hang in place. Each rank is read at a
moment of its own, so all are read twice, and who has moved between the two is not named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.core.records.model import Collective, Standing

    Behind = dict[int, str]
    """Rank -> how it shows."""

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


def find(reports: Sequence[Standing], again: Sequence[Standing] | None = None) -> ArrivalFinding:
    """Find the ranks that hold up the others, by the first of these that finds any: silence, collectives,
    steps, missing answers, open collectives, activity.

    A method that names more than half of the ranks is passed over: it may as well be the others. Silence
    is no guess and may name any number. `again`: the same ranks, read once all of `reports` were there. Ranks
    are read at different moments, so only who has not moved since is named. None: they are not read yet."""
    if len(reports) == 1:
        return ArrivalFinding((reports[0].rank,), "it is the only rank")
    for look in _LOOKS:
        behind = look.find(reports)
        if behind and (look.find is _by_silence or 2 * len(behind) <= len(reports)):
            moves = _moves(look, behind, reports, again) if again is not None else {}
            return _named(behind, moves)
    return ArrivalFinding((), "no rank is behind the others: all stand at the same place")


def _named(behind: Behind, moves: Behind) -> ArrivalFinding:
    """Name those that are behind and have not moved."""
    still = tuple(sorted(rank for rank in behind if rank not in moves))
    moved = min(moves, default=-1)
    if not still:
        reason = f"rank {moved} seemed to be behind ({behind[moved]}), and {moves[moved]}"
        return ArrivalFinding((), f"undetermined: {reason}")
    too = f"; rank {moved} seemed to be behind, too, and {moves[moved]}" if moves else ""
    return ArrivalFinding(still, behind[still[0]] + too)


def _moves(look: _Look, behind: Behind, reports: Sequence[Standing], again: Sequence[Standing]) -> Behind:
    """Of the ranks that seem to be behind, those that have moved between the two readings, and how."""
    later = {each.member: each for each in again}
    moves = {}
    for each in reports:
        if each.rank in behind:
            other = later.get(each.member)
            moves[each.rank] = _moved(look, each, other) if other is not None else "it was not read again"
    return {rank: words for rank, words in moves.items() if words}


def _moved(look: _Look, first: Standing, second: Standing) -> str:
    """How a rank has moved between two readings; "" if it stands where it stood.

    What it has called or completed is the same whenever others are read. Where it stands is not: so where
    this is all that speaks against it, it must stand in the same frames."""
    if look.find is _by_silence:
        return "" if second.silent_s > 0 else "it has answered since"
    return _gone_on(first, second) or (_elsewhere(first, second) if look.by_place else "")


def _gone_on(first: Standing, second: Standing) -> str:
    if second.step != first.step:
        return f"it has come to step {second.step} since"
    if second.collectives != first.collectives:
        return _called(first, second)
    return f"it has made progress {second.since_s:.1f} s ago" if second.since_s < first.since_s else ""


def _elsewhere(first: Standing, second: Standing) -> str:
    if second.activity != first.activity:
        return f"it was in {first.activity}, and is in {second.activity}"
    if second.frames == first.frames:
        return ""
    here, there = ("".join(each.frames[:1]) or "no known place" for each in (first, second))
    return f"it was at {here}, and is at {there}" + (", called from elsewhere" if here == there else "")


def _called(first: Standing, second: Standing) -> str:
    before = {c.group: c for c in first.collectives}
    for each in second.collectives:
        if each != before.get(each.group):
            ended = each.group in before and each.sequence == before[each.group].sequence
            what = f"ended {each.ended}" if ended else f"entered {each.sequence}"
            return f"it has {what} of group {each.group} since"
    return "it did not tell its collectives again"


def _by_silence(reports: Sequence[Standing]) -> Behind:
    """Find ranks whose processes live and do not answer: native code holds the interpreter's lock.

    Other ranks may seem to be behind only because they wait for such a rank, in a group that it does not
    report."""
    mute = [s for s in reports if s.silent_s > 0]
    return {s.rank: f"its interpreter has not answered for {s.silent_s:.1f} s" for s in mute}


def _by_answers(reports: Sequence[Standing]) -> Behind:
    """Find ranks that report no collectives, while others do."""
    mute = [s.rank for s in reports if not s.collectives]
    answering = [s.rank for s in reports if s.collectives]
    words = f"it does not answer, {_ranks(answering)} in a collective" if answering else ""
    return dict.fromkeys(mute, words) if answering else {}


def _by_collectives(reports: Sequence[Standing]) -> Behind:
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
    return {rank: words for rank, words in behind.items() if rank not in waiting}


def _groups(reports: Sequence[Standing]) -> list[str]:
    return list(dict.fromkeys(c.group for s in reports for c in s.collectives))


def _operation(collective: Collective) -> str:
    if not collective.operation:
        return ""
    size = f", {collective.bytes} bytes" if collective.bytes else ""
    return f" ({collective.operation}{size})"


def _by_steps(reports: Sequence[Standing]) -> Behind:
    """Find ranks that are in an earlier step than the newest one."""
    newest = max(s.step for s in reports)
    ahead = [s.rank for s in reports if s.step == newest]
    late = [s for s in reports if s.step < newest]
    return {s.rank: f"it is in step {s.step}, {_ranks(ahead)} in step {newest}" for s in late}


def _by_open_collectives(reports: Sequence[Standing]) -> Behind:
    """Find ranks that are in no collective while others are inside one. Only when every rank reports how
    many of its collectives have ended."""
    known = [s for s in reports if s.collectives and all(c.ended >= 0 for c in s.collectives)]
    if len(known) < len(reports):
        return {}
    outside = [s.rank for s in known if all(c.ended >= c.sequence for c in s.collectives)]
    within = [s.rank for s in known if s.rank not in outside]
    return dict.fromkeys(outside, f"it is in no collective, {_ranks(within)} within one") if within else {}


def _by_activity(reports: Sequence[Standing]) -> Behind:
    """Find the rank that is the only one with its activity, while all others share another one."""
    doing: dict[str, list[int]] = {}
    for s in reports:
        doing.setdefault(s.activity, []).append(s.rank)
    alone = [activity for activity, ranks in doing.items() if len(ranks) == 1]
    if len(doing) != 2 or len(alone) != 1:
        return {}
    (other,) = (activity for activity in doing if activity != alone[0])
    return dict.fromkeys(doing[alone[0]], f"it is in {alone[0]}, all others are in {other}")


@dataclass(frozen=True, slots=True)
class _Look:
    """One method to find ranks that are behind. `by_place`: it rests on where they stood when they were read,
    not on what they had called or completed."""

    find: Callable[[Sequence[Standing]], Behind]
    by_place: bool = False


_LOOKS = (
    _Look(_by_silence),
    _Look(_by_collectives),
    _Look(_by_steps),
    _Look(_by_answers),
    _Look(_by_open_collectives, by_place=True),
    _Look(_by_activity, by_place=True),
)


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
