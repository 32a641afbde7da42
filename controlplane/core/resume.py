"""Where a generation's state comes from: the newest step that is whole, and of that the nearest copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.model import NO_RANK, Resume, Tier

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE = ("all",)
"""The shards of replicated state: every copy holds all of it."""

NEAREST = {Tier.DONOR: 0, Tier.MEMORY: 1, Tier.CHECKPOINT: 2, Tier.FRESH: 3}


@dataclass(frozen=True, slots=True)
class Copy:
    """One shard of the state after `step` steps, where rank `rank` can get at it."""

    tier: Tier
    step: int
    rank: int
    shard: str = WHOLE[0]
    member: str = ""
    checkpoint: str = ""


def choose(copies: Sequence[Copy], known_step: int, shards: Sequence[str] = WHOLE) -> Resume | None:
    """The newest step of which every shard is reachable, from its nearest copy; None when there is none.

    `known_step` is the newest step ever completed: a fall behind it is named in the reason."""
    steps = sorted({copy.step for copy in copies}, reverse=True)
    for step in steps:
        nearest = [_nearest(copies, step, shard) for shard in shards]
        if all(copy is not None for copy in nearest):
            # The shard that is farthest away says what kind of restore this is.
            worst = max((c for c in nearest if c is not None), key=lambda c: (NEAREST[c.tier], -c.rank))
            return _resume(worst, known_step)
    return None


def _nearest(copies: Sequence[Copy], step: int, shard: str) -> Copy | None:
    usable = [copy for copy in copies if copy.step == step and copy.shard == shard]
    return min(usable, key=lambda c: (NEAREST[c.tier], c.rank, c.member, c.checkpoint), default=None)


def _resume(copy: Copy, known_step: int) -> Resume:
    if copy.tier is Tier.FRESH:
        reason = "nothing to restore: the job begins"
        if known_step > 0:
            reason = f"step {known_step} was reached, but no copy of any state is left: the job begins again"
        return Resume(Tier.FRESH, 0, copy.rank, reason=reason)
    sources = {
        Tier.DONOR: f"rank {copy.rank} lives and is clean with step {copy.step}, the newest there is",
        Tier.MEMORY: f"the snapshot that {copy.member} left in memory is the newest state there is",
        Tier.CHECKPOINT: f"no living copy and no snapshot is as new as checkpoint {copy.checkpoint}",
    }
    return Resume(
        tier=copy.tier,
        step=copy.step,
        rank=copy.rank if copy.rank != NO_RANK else 0,
        member=copy.member if copy.tier is Tier.MEMORY else "",
        checkpoint=copy.checkpoint,
        reason=sources[copy.tier],
    )
