"""Notice processes that do not start: the launcher does not act, or the order was lost with a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, eligibility
from controlplane.core.records.model import Cause, Failure, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import ASKED

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def orphaned(member: Member) -> bool:
    """Whether it waits for its script, and the order for that was a former leader's, which may have been
    lost."""
    return member.launch is None and member.status is not None and member.phase in ASKED


def watch(state: ClusterState, job: Job, member: Member) -> None:
    """Judge a process dead that its launcher has not started within `launch_timeout_s`.

    The time during which its node is away does not count. Only members in the phase LAUNCHED are judged: the
    others have been started."""
    limit_s = state.settings.launch_timeout_s
    if not state.up(member.node) or member.phase is not MemberPhase.LAUNCHED or member.launch is None:
        member.launch_by = 0.0
        if member.waits_for:
            member.waits_for = ""
            state.ask_health()
        return
    if _waits(state, job, member):
        return
    if not member.launch_by:
        member.launch_by = state.now + limit_s
    if state.now < member.launch_by:
        _tell_late(state, job, member, limit_s)
        return
    message = f"the launcher of {member.node} has not started it within {limit_s:.0f} s"
    eligibility.hold(state, state.nodes[member.node], state.settings.hold_max_s, message)
    deaths.mark_dead(state, job, member, Failure(Cause.SILENT, message, age_s=limit_s))
    deaths.kill(state, job, member, message)


def unstarted(job: Job) -> str:
    """Say which of the job's ranks cannot be started now, and what is in the way; "": none."""
    if job.phase is JobPhase.RUNNING:
        return ""
    for member in job.seating.at(job.seating.rank_sets.asked):
        if member.phase is MemberPhase.LAUNCHED and member.waits_for:
            where = f"rank {member.rank} cannot be started on {member.node} now"
            return f"{where}, and the others wait for it: {member.waits_for}"
    return ""


def _tell_late(state: ClusterState, job: Job, member: Member, limit_s: float) -> None:
    """Say at half of its time that a launcher does not act: until then, an interpreter may still be loading,
    as in the first launch of a job, of which this says nothing."""
    told_at = member.launch_by - limit_s / 2
    why = ""
    if state.now >= told_at and _has_trained(job):
        why = (
            f"its launcher has not done it for {limit_s / 2:.0f} s (is that process stopped, or the host too "
            f"busy?) and is given up after {limit_s:.0f} s"
        )
    if why != member.waits_for:
        member.waits_for = why
        state.ask_health()
    state.wake(job, told_at if state.now < told_at else member.launch_by)


def _has_trained(job: Job) -> bool:
    return job.barrier or job.restore.known_step > 0


def _waits(state: ClusterState, job: Job, member: Member) -> bool:
    """Whether nothing more is to be judged, because the node has reported what prevents the member's start.

    The node retries by itself, and the job waits for that. If the job has never come to its barrier, the
    member is marked dead instead: the job has only just been submitted, and somebody is there to correct
    it."""
    why = member.status.no_room if member.status is not None else ""
    if not why:
        return False
    known_why, member.waits_for = member.waits_for, why
    if why != known_why:
        state.ask_health()
    member.launch_by = 0.0
    if not _has_trained(job):
        deaths.mark_dead(state, job, member, Failure(Cause.LAUNCH_FAILED, why))
        deaths.kill(state, job, member, why)
    elif why != known_why:
        state.note(
            NoteKind.LAUNCH_WAITS,
            job.name,
            f"rank {member.rank} cannot be started on {member.node} now: {why}",
        )
    return True
