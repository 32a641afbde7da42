"""What of an agent's word is heard: nothing about a job for which it may not speak.

A word about another job is not heard at all. Copies are the exception: a node may keep some of a job that
was its own before its certificate was made narrower. They are left out, and the rest of its word counts: its
ranks are as alive as ever."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from controlplane.core.records import touched
from controlplane.core.records.events import NodeBeat, NodeJoined

if TYPE_CHECKING:
    from controlplane.access.callers import Caller
    from controlplane.core.records.events import Event

    E = TypeVar("E", bound=Event)


def own_copies(caller: Caller, event: E) -> tuple[E, str]:
    """The event without copies of jobs that are not the caller's, and what is to be told of those; ""."""
    if not caller.jobs or not isinstance(event, NodeJoined | NodeBeat):
        return event, ""
    theirs = [copy for copy in event.copies if not caller.may_touch(copy.job)]
    if not theirs:
        return event, ""
    kept = tuple(copy for copy in event.copies if caller.may_touch(copy.job))
    more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
    told = (
        f"{caller} offers a copy of {theirs[0].member}, of job {theirs[0].job!r:.80}{more}: it may speak for "
        f"{', '.join(caller.jobs)} only; add the job to its certificate, or leave the copy out"
    )
    return dataclasses.replace(event, copies=kept), told


def foreign(caller: Caller, event: Event) -> str:
    """The first job of this event that is not the caller's; "" when all are."""
    return next((job or "(no name)" for job in touched.jobs(event) if not caller.may_touch(job)), "")
