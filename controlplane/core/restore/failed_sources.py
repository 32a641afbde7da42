"""Remember the sources whose state a rank could not put in place, so that they are not chosen again."""

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
    """Never choose this source for `step` again: a rank could not put its state in place.

    When the arena had been filled from a replica holder by our own order, that holder's copy is excluded
    too."""
    answer = job.restore.answered.pop(source.member, None)
    if source.tier in (Tier.MEMORY, Tier.PEER):
        job.restore.failed_sources[(source.member, step)] = reason
    if answer is not None and answer.tier is Tier.PEER:
        key = state_sources.copy_key(answer.source, answer.holder, step)
        job.restore.failed_sources[key] = reason
        job.restore.fetch_tries.pop(key, None)  # the transfer worked and the copy is bad: no further try
