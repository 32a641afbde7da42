"""Choose a generation's restore point: the newest whole state, and for every shard the nearest copy. Pure.

A state is named by its step and its origin generation (`Resume.born`). Two generations may compute the same
step differently, so shards are put together only when both are equal. A state is whole when a copy of each
shard can be reached. The newest whole state wins however far away it is; among copies of one shard the
nearest tier wins. A checkpoint of another layout is whole by itself when every rank reads (reshards) its own
part of it. Replicated state has one shard, so nothing is put together and its origin does not matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from controlplane.core.records.copies import Copy
from controlplane.core.records.model import NO_RANK, WHOLE_STATE, Resume, Source, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WHOLE = (WHOLE_STATE,)
"""The shard ids of replicated state: one, and every copy holds all of it."""

NO_READERS: Mapping[str, int] = MappingProxyType({})
"""Names no reader: rank 0 reads each shard from a checkpoint."""

EVERY = "+"
"""Shard id of a copy that holds every shard: a checkpoint of this layout."""

OTHER = "*"
"""Shard id of a checkpoint of another layout: it serves all ranks at once, which reshard it themselves."""

NEAREST = {Tier.DONOR: 0, Tier.MEMORY: 1, Tier.PEER: 2, Tier.CHECKPOINT: 3, Tier.FRESH: 4}
"""Order of the tiers; the smallest is the nearest."""

NAMED_MAX = 4
"""Up to so many shards are named in a reason; more are only counted."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen restore point: as the ranks get it, and the copies that it was made from."""

    resume: Resume
    copies: tuple[Copy, ...]  # one per shard, in the order of the shards; () when each rank reshards
    suspect: bool = False  # replicas of this state differed


State = tuple[int, int]
"""(step, origin generation); the origin is 0 for replicated state."""


def choose(
    copies: Sequence[Copy],
    known_step: int,
    shards: Sequence[str] = WHOLE,
    readers: Mapping[str, int] = NO_READERS,
) -> Choice | None:
    """Return the newest state of which every shard can be reached; None when there is none.

    A suspect state is passed over for an older one if it would be read from a checkpoint: what lives, and
    what is left in memory, is what the job was told to go on with. The reason says so. Doubted copies (nobody
    vouches for them) are used only when all progress would be lost without them.
    `known_step`: newest step that was completed anywhere; the reason names it when the job begins again at 0.
    `shards`: the ids that are needed. `readers`: by shard, the rank that reads it from a checkpoint; 0 where
    not named."""
    choice = _choose(copies, known_step, shards, readers)
    if choice is None or not choice.suspect:
        return choice
    if choice.resume.tier is not Tier.CHECKPOINT:
        return _with_reason(
            choice, "; it is suspect, as replicas differed; from memory the job goes on with it"
        )
    sound = _choose([copy for copy in copies if not copy.suspect], known_step, shards, readers)
    if sound is None or sound.resume.step <= 0:
        return _with_reason(choice, "; it is suspect, as replicas differed; nothing else is left")
    newer = choice.resume.checkpoint
    return _with_reason(sound, f"; checkpoint {newer} is newer, and suspect: replicas of that state differed")


def _with_reason(choice: Choice, words: str) -> Choice:
    return replace(choice, resume=replace(choice.resume, reason=choice.resume.reason + words))


def _choose(
    copies: Sequence[Copy], known_step: int, shards: Sequence[str], readers: Mapping[str, int]
) -> Choice | None:
    believed = [copy for copy in copies if not copy.doubted]
    choice = _newest(believed, known_step, shards, readers)
    all_lost = choice is None or choice.resume.step <= 0 < known_step
    if not all_lost or len(believed) == len(copies):
        return choice
    doubted = _newest(copies, known_step, shards, readers)
    better = doubted is not None and (choice is None or doubted.resume.step > choice.resume.step)
    return doubted if better else choice


def _newest(
    copies: Sequence[Copy], known_step: int, shards: Sequence[str], readers: Mapping[str, int]
) -> Choice | None:
    states = _states(copies, by_origin=len(shards) > 1)
    for state in sorted(states, reverse=True):
        found = _whole(states[state], shards, readers)
        if found:
            return _choice(found, shards, known_step)
    return None


def _states(copies: Sequence[Copy], by_origin: bool) -> dict[State, dict[str, Copy]]:
    """Group copies by state, and keep the nearest copy of each shard. `by_origin`: origins are kept apart."""
    states: dict[State, dict[str, Copy]] = {}
    for copy in copies:
        held = states.setdefault((copy.step, copy.origin if by_origin else 0), {})
        if copy.shard not in held or _distance(copy) < _distance(held[copy.shard]):
            held[copy.shard] = copy
    return states


def _distance(copy: Copy) -> tuple[bool, bool, int, bool, int, str, str, str]:
    return (
        copy.doubted,
        copy.suspect,
        NEAREST[copy.tier],
        not copy.arena,
        copy.rank,
        copy.member,
        copy.node,
        copy.checkpoint,
    )


def _whole(held: dict[str, Copy], shards: Sequence[str], readers: Mapping[str, int]) -> list[Copy]:
    """Return one copy per shard, or the one checkpoint to reshard; [] when some shard is out of reach."""
    every, other = held.get(EVERY), held.get(OTHER)
    found = []
    for shard in shards:
        copy = held.get(shard)
        if copy is None and every is not None:
            copy = replace(every, shard=shard, rank=readers.get(shard, 0))
        if copy is None:
            return [other] if other else []
        found.append(copy)
    return found


def _farthest(found: Sequence[Copy]) -> Copy:
    """Return the copy of the farthest tier: it names the tier of the whole restore."""
    return max(found, key=lambda copy: (NEAREST[copy.tier], -copy.rank))


def _choice(found: list[Copy], shards: Sequence[str], known_step: int) -> Choice:
    worst = _farthest(found)
    if worst.shard == OTHER:
        reason = (
            f"checkpoint {worst.checkpoint} was saved in another layout: every rank reads its own part of it"
        )
        return Choice(
            Resume(
                Tier.CHECKPOINT, worst.step, 0, checkpoint=worst.checkpoint, reason=reason,
                born=worst.origin, reshard=True, digest=worst.digest,
            ),
            (),
            worst.suspect,
        )  # fmt: skip
    origin = 0 if worst.tier is Tier.FRESH else worst.origin
    resume = Resume(
        tier=worst.tier,
        step=worst.step,
        rank=worst.rank if worst.rank != NO_RANK else 0,
        member=worst.member if worst.tier is Tier.MEMORY else "",
        checkpoint=worst.checkpoint,
        reason=_reason(found, shards, known_step),
        sources=tuple(map(_source, shards, found)) if len(shards) > 1 else (),
        born=origin,
    )
    return Choice(resume, tuple(found), any(copy.suspect for copy in found))


def _source(shard: str, copy: Copy) -> Source:
    return Source(shard, copy.tier, max(copy.rank, 0), copy.member if copy.tier is Tier.MEMORY else "")


def _reason(found: list[Copy], shards: Sequence[str], known_step: int) -> str:
    worst = _farthest(found)
    if worst.tier is Tier.FRESH and known_step > 0:
        return f"step {known_step} was reached, but no copy of any state is left: the job begins again"
    if worst.tier is Tier.FRESH:
        return "nothing to restore: the job begins"
    if len(shards) == 1:
        return _ONE[worst.tier].format(copy=worst) + _doubts(found)
    words = "; ".join(_sources_text(tier, found) for tier in NEAREST if any(c.tier is tier for c in found))
    storage = "" if worst.tier in (Tier.CHECKPOINT, Tier.FRESH) else "; no storage touched"
    return f"step {worst.step} is the newest of which every shard is left: {words}{storage}{_doubts(found)}"


def _doubts(found: Sequence[Copy]) -> str:
    """Describe, for the reason, the copies whose digest is not known from their rank's own agent."""
    doubted = [f"{copy.node}'s of {copy.member}" for copy in found if copy.doubted][:NAMED_MAX]
    hearsay = [f"{copy.node}'s of {copy.member}" for copy in found if copy.hearsay][:NAMED_MAX]
    words = ""
    if doubted:
        words = f"; nobody vouches for the copy {', '.join(doubted)}, and nothing else is left"
    if hearsay:
        words += f"; what {', '.join(hearsay)} hashes to is known from those who keep it"
    return words


def _sources_text(tier: Tier, found: list[Copy]) -> str:
    here = [copy for copy in found if copy.tier is tier]
    if len(here) > NAMED_MAX:
        return f"{len(here)} shards {_WHERE[tier]}"
    return ", ".join(f"rank {copy.rank} {_FROM[tier].format(copy=copy)}" for copy in here)


_ONE = {
    Tier.DONOR: "rank {copy.rank} lives and is clean with step {copy.step}, the newest there is",
    Tier.MEMORY: "the snapshot that {copy.member} left in memory is the newest state there is; "
    "no storage touched",
    Tier.PEER: "the copy that {copy.node} keeps of {copy.member}'s snapshot is the newest state there is; "
    "no storage touched",
    Tier.CHECKPOINT: "no living copy and no snapshot is as new as checkpoint {copy.checkpoint}",
}

_FROM = {
    Tier.DONOR: "as it lives",
    Tier.MEMORY: "from the snapshot of {copy.member} in memory",
    Tier.PEER: "from the copy that {copy.node} keeps of {copy.member}",
    Tier.CHECKPOINT: "from checkpoint {copy.checkpoint}",
    Tier.FRESH: "as its script built it",
}

_WHERE = {
    Tier.DONOR: "as they live",
    Tier.MEMORY: "from snapshots in memory",
    Tier.PEER: "from copies at other nodes",
    Tier.CHECKPOINT: "from the checkpoint",
    Tier.FRESH: "as the script built them",
}
