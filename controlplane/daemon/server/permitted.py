"""Check that agents report only on jobs for which their credentials let them speak.

An event about another job is dropped whole. Copies of snapshots are the exception: a node may still hold
copies of a job that it was allowed before its certificate was made narrower. They are left out, and the rest
of the event counts: the node's ranks are as alive as ever."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from controlplane.core.records import touched
from controlplane.core.records.events import NodeBeat, NodeJoined

if TYPE_CHECKING:
    from controlplane.access.callers import Caller
    from controlplane.wire.codec import AgentEvent

    E = TypeVar("E", bound=AgentEvent)


def own_copies(caller: Caller, event: E) -> tuple[E, str]:
    """Return the event without copies of jobs that are not the caller's, and what to log about
    those ("": nothing)."""
    if not caller.jobs or not isinstance(event, NodeJoined | NodeBeat):
        return event, ""
    theirs = [copy for copy in event.copies if not caller.may_touch(copy.job)]
    if not theirs:
        return event, ""
    kept = tuple(copy for copy in event.copies if caller.may_touch(copy.job))
    more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
    refusal = (
        f"{caller} offers a copy of {theirs[0].member}, of job {theirs[0].job!r:.80}{more}: it may speak for "
        f"{', '.join(caller.jobs)} only; add the job to its certificate, or leave the copy out"
    )
    return dataclasses.replace(event, copies=kept), refusal


def foreign(caller: Caller, event: AgentEvent) -> str:
    """Return the first job of this event that is not the caller's; "" when there is none."""
    return next((job or "(no name)" for job in touched.jobs(event) if not caller.may_touch(job)), "")
