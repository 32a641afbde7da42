"""Say whether somebody is still waited for: then news of another member changes nothing."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from controlplane.core.records.model import JobPhase
from controlplane.core.state.resize import HALT, WARM

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def quiet(job: Job) -> bool:
    """Nothing is under way that has an eye on every member."""
    if (
        job.recovery.unjudged
        or job.recovery.stalled
        or job.recovery.relaunch
        or (job.replicas.replan and job.phase is JobPhase.RUNNING)
    ):
        return False
    if (
        job.places.pause
        or job.checkpoints.wanted_now
        or job.ending
        or job.recovery.hang
        or job.recovery.broken_since is not None
    ):
        return False
    if job.checkpoints.asks and not all(ask.outcome for ask in job.checkpoints.asks.values()):
        return False
    resize = job.places.resize
    if resize is None or resize.stage == WARM:  # it looks at newcomers, who have no seats
        return True
    return resize.stage == HALT and resize.met and job.phase is JobPhase.STOPPING


def in_seat(job: Job, member: Member) -> bool:
    """A living member in its seat, with nothing to complain of."""
    status = member.status
    if member.failure is not None or status is None or status.failure is not None or status.no_room:
        return False
    return job.seating.holds(member)


def is_waited_for(job: Job, name: str, waits: Callable[[Member], bool]) -> bool:
    """Whether somebody is waited for; the search goes on where it found the last one."""
    seated = job.seated()
    size = len(seated)
    first = job.recovery.watched.get(name, 0) % size
    if waits(seated[first]):
        return True
    for rank in chain(range(first + 1, size), range(first)):
        if waits(seated[rank]):
            job.recovery.watched[name] = rank
            return True
    return False
