"""Notice processes that do not start: the launcher does not act, or the order was lost with a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, eligibility
from controlplane.core.records.model import Cause, Failure, MemberPhase
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


def watch(m: ClusterState, job: Job, member: Member) -> None:
    """Judge a process dead that its launcher has not started within `launch_timeout_s`.

    The time during which its node is away does not count. Only members in the phase LAUNCHED are judged: the
    others have been started."""
    limit_s = m.settings.launch_timeout_s
    if not m.up(member.node) or member.phase is not MemberPhase.LAUNCHED or member.launch is None:
        member.launch_by = 0.0
        return
    if _waits(m, job, member):
        return
    if not member.launch_by:
        member.launch_by = m.now + limit_s
    if m.now < member.launch_by:
        m.wake(job, member.launch_by)
        return
    message = f"the launcher of {member.node} has not started it within {limit_s:.0f} s"
    eligibility.hold(m, m.nodes[member.node], m.settings.hold_max_s, message)
    deaths.mark_dead(m, job, member, Failure(Cause.SILENT, message, age_s=limit_s))
    deaths.kill(m, job, member, message)


def _waits(m: ClusterState, job: Job, member: Member) -> bool:
    """Whether nothing more is to be judged, because the node has reported what prevents the member's start.

    The node retries by itself, and the job waits for that. If the job has never come to its barrier, the
    member is marked dead instead: the job has only just been submitted, and somebody is there to correct
    it."""
    why = member.status.no_room if member.status is not None else ""
    told, member.waits_for = member.waits_for, why
    if not why:
        return False
    member.launch_by = 0.0
    if not (job.barrier or job.restore.known_step > 0):
        deaths.mark_dead(m, job, member, Failure(Cause.LAUNCH_FAILED, why))
        deaths.kill(m, job, member, why)
    elif why != told:
        m.note(
            NoteKind.LAUNCH_WAITS,
            job.name,
            f"rank {member.rank} cannot be started on {member.node} now: {why}",
        )
    return True
