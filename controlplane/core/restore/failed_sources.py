"""Remember which sources gave a state that could not be put in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import (
    Source,
    Tier,
)
from controlplane.core.restore import state_sources

if TYPE_CHECKING:
    from controlplane.core.state.job import Job


def remember(job: Job, source: Source, step: int, reason: str) -> None:
    """The state that this source had for a generation would not be put in place: not from there again."""
    answer = job.restore.answered.pop(source.member, None)
    if source.tier in (Tier.MEMORY, Tier.PEER):
        job.restore.failed_sources[(source.member, step)] = reason
    if answer is not None and answer.tier is Tier.PEER:
        key = state_sources.copy_key(answer.source, answer.keeper, step)
        job.restore.failed_sources[key] = reason
        job.restore.fetch_tries.pop(key, None)  # it came, and is no good: it is not asked for again
