"""Skip a job's full evaluation for news of one member that cannot change anything.

A job of ten thousand ranks mostly waits for its last one. While some other rank is known that the job
still waits for, a report is recorded and nothing more. Which rank that is, is remembered as a guess only:
it is checked at each report, so a wrong guess costs a longer search, never a wrong decision. Deadlines,
deaths, nodes and answers to orders always lead to a full evaluation (`Cluster` drives the job)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.timing import look_gap_s
from controlplane.core.records.words import ASKED, IN_GENERATION
from controlplane.core.recovery import barrier, first_steps
from controlplane.core.state import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

_COMING = (*ASKED, MemberPhase.STARTING)
"""Phases before the barrier."""


def still(state: ClusterState, job: Job, member: Member, old: MemberStatus | None) -> bool:
    """Whether nothing follows from this member's new status. `old`: its status before."""
    look = _LOOKS.get(job.phase)
    if (
        look is None
        or not waiting.in_seat(job, member)
        or not waiting.quiet(job)
        or (old is not None and old.no_room)
    ):
        return False
    if member.status is not None and member.status.snapshot_generation:
        releasing.from_status(job, member)
    if old is None and job.phase is JobPhase.RUNNING:
        return _first_word(job, member)
    return look(state, job, member, old.phase if old is not None else MemberPhase.LAUNCHED)


def still_started(state: ClusterState, job: Job) -> bool:
    """Whether nothing follows from a member's first step: others must still complete theirs."""
    return waiting.quiet(job) and (
        job.recovery.incident is None or waiting.is_waited_for(job, "started", _unstarted(job))
    )


def _launching(_m: ClusterState, job: Job, member: Member, before: MemberPhase) -> bool:
    """While launching: others have not come to the barrier, or, without the SDK, do not run yet.

    When the last rank is reported for the first time, spares may be launched: that needs a full
    evaluation."""
    if (
        before is MemberPhase.LAUNCHED
        and job.spec.spares_per_node
        and not waiting.is_waited_for(job, "unseen", _unseen)
    ):
        return False
    if member.phase not in (*_COMING, MemberPhase.READY):
        return False
    return waiting.is_waited_for(job, "launching", _unready if job.elastic else _unlaunched)


def _unseen(member: Member) -> bool:
    return member.status is None


def _unready(member: Member) -> bool:
    return member.phase is not MemberPhase.READY


def _unlaunched(member: Member) -> bool:
    return not member.dead and member.phase in ASKED


def _stopping(state: ClusterState, job: Job, member: Member, before: MemberPhase) -> bool:
    """While stopping: the member is where it was, in a generation or on its way to the barrier, or it has
    come to the barrier while others have not."""
    if member.phase in _COMING:
        return before in _COMING
    if member.phase in IN_GENERATION:
        return before in IN_GENERATION
    if not barrier.at_barrier(state, job, member):
        return False
    if before in _COMING:
        return waiting.is_waited_for(job, "barrier", lambda mb: not barrier.at_barrier(state, job, mb))
    return waiting.is_waited_for(job, "behind", lambda mb: _has_not_arrived(state, job, mb))


def _has_not_arrived(state: ClusterState, job: Job, member: Member) -> bool:
    """Whether a living member is still in a generation, or READY but not sure to stay at the barrier."""
    if member.failure is not None:
        return False
    phase = member.phase
    if phase in IN_GENERATION:
        return True
    return phase is MemberPhase.READY and not barrier.at_barrier(state, job, member)


def _storing(_m: ClusterState, _job: Job, member: Member, before: MemberPhase) -> bool:
    """While storing: the member's phase has not changed."""
    return member.phase is before


def _forming(_m: ClusterState, job: Job, member: Member, before: MemberPhase) -> bool:
    """While forming: others do not train in the generation yet."""
    generation = job.generation
    if generation is None or not generation.store:
        return False
    if member.phase is MemberPhase.READY:
        return before is MemberPhase.READY and member.generation < generation.number
    if member.phase not in (MemberPhase.FORMING, MemberPhase.RUNNING) or not _of(job, member):
        return False
    number = generation.number

    def waits(mb: Member) -> bool:
        status = mb.status
        runs = status is not None and status.phase is MemberPhase.RUNNING and status.generation == number
        return not (runs or mb.done)

    return waiting.is_waited_for(job, "forming", waits)


def _of(job: Job, member: Member) -> bool:
    """Whether it is in the job's generation."""
    return job.generation is not None and member.generation == job.generation.number


def _first_word(job: Job, member: Member) -> bool:
    """While running under a new leader: its agent reports it for the first time, it trains in the generation,
    and other ranks are not reported yet."""
    if job.recovery.incident is not None or job.generation is None or not job.generation.store:
        return False
    if member.phase is not MemberPhase.RUNNING or not _of(job, member):
        return False
    return waiting.is_waited_for(job, "unseen", _unseen)


def _running(state: ClusterState, job: Job, member: Member, before: MemberPhase) -> bool:
    """While running: it trains on, its snapshots release nothing, and an open incident waits for other
    ranks."""
    generation = job.generation
    if generation is None or not generation.store or not _of(job, member) or before is not member.phase:
        return False
    if member.phase is not MemberPhase.RUNNING or not _uncopied(state, job, member):
        return False
    if job.recovery.incident is None:
        return True
    first_steps.infer_start(state, job, member, generation)
    return waiting.is_waited_for(job, "started", _unstarted(job))


def _uncopied(state: ClusterState, job: Job, member: Member) -> bool:
    """Whether this member's snapshots change nothing, or are looked at soon: in a large cluster a job looks
    at them no more often than at nodes. Otherwise, where no step is on all ranks, each beat would be a search
    over all ranks that finds nothing."""
    if looked(state, job) or releasing.uncopied(job, member):
        return True
    job.copied_at = state.now
    return False


def looked(state: ClusterState, job: Job) -> bool:
    """Whether this job has just looked at snapshots that are not on all ranks: then it does so again soon."""
    next_at = job.copied_at + look_gap_s(len(state.nodes))
    if state.now < next_at:
        state.wake(job, next_at)
        return True
    return False


def _unstarted(job: Job) -> Callable[[Member], bool]:
    """A test for members that the end of an incident waits for."""
    number = job.generation_number
    first = job.generation.resume.step if job.generation else NO_STEP

    def waits(member: Member) -> bool:
        if member.done or member.started >= number or member.inferred_start[0] == number:
            return False
        return member.status is None or member.status.step <= first

    return waits


def _leaving(_m: ClusterState, job: Job, member: Member, before: MemberPhase) -> bool:
    """While leaving: other ranks have not ended their scripts."""
    if member.phase is not MemberPhase.EXITED or before is MemberPhase.READY:
        return False
    return waiting.is_waited_for(job, "leaving", lambda mb: mb.phase is MemberPhase.FINISHED)


_LOOKS: dict[JobPhase, Callable[[ClusterState, Job, Member, MemberPhase], bool]] = {
    JobPhase.LAUNCHING: _launching,
    JobPhase.STOPPING: _stopping,
    JobPhase.PARKED: _stopping,
    JobPhase.STORING: _storing,
    JobPhase.FORMING: _forming,
    JobPhase.RUNNING: _running,
    JobPhase.LEAVING: _leaving,
}
"""For each phase, whether nothing follows. In phases without an entry, every report leads to a full
evaluation."""
