"""Mark members dead and have them killed. A death in a seat is evidence of a failure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures.verdicts import NODE_CAUSES
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import (
    NO_STEP,
    Cause,
    Failure,
    JobPhase,
    MemberPhase,
    Role,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def mark_dead(state: ClusterState, job: Job, member: Member, failure: Failure) -> None:
    """Mark this member dead. If it has a seat, that is evidence of a failure; otherwise it is only
    journaled.

    Spares that die while their node lives are counted per node: a node where that happens too often gets
    no more. Those that were ranks before are not: they end because the job has left their node. Nor are those
    that are not needed."""
    if failure.step == NO_STEP:
        failure = dataclasses.replace(failure, step=step_of(member))
    member.failure, member.died_at = failure, state.now
    job.recovery.stalled.pop(member.name, None)
    job.changed(member)
    state.touch(job)
    if job.seating.holds(member):
        job.recovery.unjudged.append(Evidence(state.now, failure, member.name, member.node, member.rank))
        return
    kind = NoteKind.SPARE_DIED if member.role is Role.SPARE else NoteKind.MEMBER_DIED
    own = failure.cause not in (*NODE_CAUSES, Cause.RESIZED)
    if member.role is Role.SPARE and own and not member.generation:
        job.recovery.spare_failures[member.node] = job.recovery.spare_failures.get(member.node, 0) + 1
    state.note(kind, member.name, failure.message)


def step_of(member: Member) -> int:
    """The step it was last reported in; NO_STEP when none was."""
    return member.status.step if member.status else NO_STEP


def kill(state: ClusterState, job: Job, member: Member, reason: str) -> None:
    """Order it killed, repeatedly for as long as its agent reports that it lives."""
    if member.alive:
        key = ("kill", member.node, member.name)
        state.order(job, key, fx.Kill(member.node, job.name, member.name, reason))


def is_over(job: Job, member: Member) -> bool:
    """Whether its process has ended as it should, after its function returned. What happens to its node no
    longer matters to it."""
    ended = member.done and not member.dead and member.phase is MemberPhase.EXITED
    return ended and job.phase is JobPhase.LEAVING and job.seating.holds(member)
