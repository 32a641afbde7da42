"""Who did not arrive: from where all ranks of a hung generation stand to those that the others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.model import Collective, Standing

FRAMES_TOLD = 3
NAMED_MAX = 4
"""More ranks than this are counted in a sentence, not named."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Ranks that did not arrive where the others wait, and how that shows; none: nobody is singled out."""

    ranks: tuple[int, ...]
    reason: str


def find(standings: Sequence[Standing]) -> Finding:
    """Name who holds up the others: by silence, else by collectives, by steps, by what each is doing.

    When more than half of them would be named, nobody is: then it may as well be the others. Silence is no
    guess, and names as many as are silent."""
    if len(standings) == 1:
        return Finding((standings[0].rank,), "it is the only rank")
    silent = _by_silence(standings)
    if silent.ranks:
        return silent
    for look in (_by_collectives, _by_steps, _by_answers, _by_open_collectives, _by_activity):
        found = look(standings)
        if found.ranks and 2 * len(found.ranks) <= len(standings):
            return found
    return Finding((), "no rank is behind the others: all stand at the same place")


def _by_silence(standings: Sequence[Standing]) -> Finding:
    """Its process lives, and nothing in it speaks: native code holds the interpreter's lock. Whoever seems to
    be behind beside it may wait for it in a group of which it does not tell."""
    mute = [s for s in standings if s.silent_s > 0]
    if not mute:
        return Finding((), "")
    longest = max(s.silent_s for s in mute)
    return Finding(tuple(s.rank for s in mute), f"its interpreter has not answered for {longest:.1f} s")


def _by_answers(standings: Sequence[Standing]) -> Finding:
    """Says nothing of its groups, while the others do."""
    mute = [s.rank for s in standings if not s.collectives]
    told = [s.rank for s in standings if s.collectives]
    return Finding(tuple(mute) if told else (), f"it does not answer, {_ranks(told)} in a collective")


def _by_collectives(standings: Sequence[Standing]) -> Finding:
    """Behind in some group, and not itself waiting for somebody in another one."""
    behind: dict[int, str] = {}
    waiting: set[int] = set()
    for group in _groups(standings):
        entered = {s.rank: c for s in standings for c in s.collectives if c.group == group}
        last = max(entered.values(), key=lambda c: c.sequence)
        late = [rank for rank, c in entered.items() if c.sequence < last.sequence]
        there = [rank for rank, c in entered.items() if c.sequence == last.sequence]
        if late:
            waiting.update(there)
        for rank in late:
            words = f"{_ranks(there)} in collective {last.sequence}{_operation(last)} of group {group}"
            behind.setdefault(rank, f"it entered {entered[rank].sequence}, {words}")
    named = [rank for rank in behind if rank not in waiting]
    return Finding(tuple(sorted(named)), behind[min(named)] if named else "")


def _groups(standings: Sequence[Standing]) -> list[str]:
    return list(dict.fromkeys(c.group for s in standings for c in s.collectives))


def _operation(collective: Collective) -> str:
    if not collective.operation:
        return ""
    size = f", {collective.bytes} bytes" if collective.bytes else ""
    return f" ({collective.operation}{size})"


def _by_steps(standings: Sequence[Standing]) -> Finding:
    newest = max(s.step for s in standings)
    late = [s for s in standings if s.step < newest]
    ahead = [s.rank for s in standings if s.step == newest]
    reason = f"it is in step {late[0].step}, {_ranks(ahead)} in step {newest}" if late else ""
    return Finding(tuple(s.rank for s in late), reason)


def _by_open_collectives(standings: Sequence[Standing]) -> Finding:
    """Outside of any collective, while the others are within one."""
    known = [s for s in standings if s.collectives and all(c.ended >= 0 for c in s.collectives)]
    if len(known) < len(standings):
        return Finding((), "")
    outside = [s.rank for s in known if all(c.ended >= c.sequence for c in s.collectives)]
    within = [s.rank for s in known if s.rank not in outside]
    reason = f"it is in no collective, {_ranks(within)} within one"
    return Finding(tuple(outside) if within else (), reason)


def _by_activity(standings: Sequence[Standing]) -> Finding:
    """The only one that does something else than all the others."""
    doing: dict[str, list[int]] = {}
    for s in standings:
        doing.setdefault(s.activity, []).append(s.rank)
    alone = [activity for activity, ranks in doing.items() if len(ranks) == 1]
    if len(doing) != 2 or len(alone) != 1:
        return Finding((), "")
    (other,) = (activity for activity in doing if activity != alone[0])
    return Finding(tuple(doing[alone[0]]), f"it is in {alone[0]}, all others are in {other}")


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > NAMED_MAX:
        return f"{len(ranks)} ranks wait"
    if len(ranks) == 1:
        return f"rank {ranks[0]} waits"
    return f"ranks {', '.join(map(str, sorted(ranks)))} wait"


def told(standing: Standing) -> str:
    """Where a rank stands, in a few words: `in step 20, forward, for 12.0 s at wait (train.py:41)`."""
    place = " < ".join(standing.frames[:FRAMES_TOLD])
    return f"in step {standing.step}, {standing.activity or 'running'}, for {standing.since_s:.1f} s" + (
        f" at {place}" if place else ""
    )
