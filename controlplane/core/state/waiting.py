"""Tell whether the job still waits for some other rank, so that news of one rank changes nothing.

A decision that needs all ranks cannot be made while one is missing. Counting the missing ranks for every
message would be a pass over all ranks each time; so the search starts at the rank that was missing last,
and usually ends there."""

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
    """Whether nothing is under way that must look at every member after each message."""
    if (
        job.recovery.unjudged
        or job.recovery.stalled
        or job.recovery.relaunch
        or (job.replicas.replan and not job.replicas.waits and job.phase is JobPhase.RUNNING)
    ):
        return False
    if (
        job.changes.pause
        or job.checkpoints.wanted_now
        or job.checkpoints.asked
        or job.ending
        or job.recovery.hang
        or job.recovery.broken_since is not None
    ):
        return False
    resize = job.changes.resize
    if resize is None or resize.stage == WARM:  # WARM looks at new members only, which have no seats
        return True
    return resize.stage == HALT and resize.met and job.phase is JobPhase.STOPPING


def in_seat(job: Job, member: Member) -> bool:
    """Whether this member lives, has its seat, and reports neither a failure nor missing shared memory."""
    status = member.told
    if member.failure is not None or status is None or status.failure is not None or status.no_room:
        return False
    return job.seating.holds(member)


def is_waited_for(job: Job, name: str, waits: Callable[[Member], bool]) -> bool:
    """Whether `waits` holds for some seated member.

    `name` says what is waited for: the search starts at the rank that was found under it last. If that
    rank is not missing any more, the search takes longer; its result is always that of a full search."""
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
