"""Tell which members train in a generation, and infer a first step from heartbeats when its report is lost.

A MemberStarted event reports a rank's first completed step with the times that it took. The event may be lost
with a stream. Heartbeats show the rank's step too, so the incident can close without the event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import (
    Generation,
    MemberPhase,
)

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def runs(member: Member, generation: Generation) -> bool:
    """Whether a member trains in this generation."""
    status = member.status
    return (
        status is not None and status.phase is MemberPhase.RUNNING and status.generation == generation.number
    )


def infer_start(state: ClusterState, job: Job, member: Member, generation: Generation) -> None:
    """Note that heartbeats show a first step completed, and wake the job when that may be believed.

    It is believed after `retry_s`, so that the event, which carries the times, is preferred."""
    status = member.status
    if status is not None and runs(member, generation) and status.step > generation.resume.step:
        if member.inferred_start[0] != generation.number:
            member.inferred_start = (generation.number, state.now)
        believed_at = member.inferred_start[1] + state.settings.retry_s
        if state.now < believed_at:
            state.wake(job, believed_at)
