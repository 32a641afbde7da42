"""Take a submitted job: a new one, one that goes on, or a failed or stopped one that is taken up again.

A job that is taken up again keeps its generation numbers, checkpoints and what is known of its state, and
forgets its failures. Processes of its former run may still live; they become spares without a seat, and are
ended before the job is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import adopting
from controlplane.core.lifecycle import ending
from controlplane.core.lifecycle.differing import differences
from controlplane.core.placement import formation
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Role
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.concerns import Checkpoints, Generations, Numbers, Recovery, Restore
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import JobSpec
    from controlplane.core.state.cluster_state import ClusterState


REFUSED = NoteKind.SUBMISSION_REFUSED
"""Kind of the note that gives the reason why a submission is refused."""


def submitted(state: ClusterState, event: ev.JobSubmitted) -> None:
    """Take a submission of a new job, or of one that has failed or was stopped.

    A job that is not over goes on unchanged: a submission with other settings is refused, an equal one only
    noted, so that a repetition does no harm. For a finished job any submission is only noted. A job whose
    records in etcd cannot be read is refused."""
    spec = event.spec
    job = state.jobs.get(spec.job)
    if job is not None and (job.phase not in (JobPhase.FAILED, JobPhase.STOPPED) or job.ending is not None):
        other = differences(job.spec, spec)
        if other and not job.ended:
            state.note(
                REFUSED, spec.job, f"a job of this name is {job.phase.value} with other settings: {other}"
            )
            return
        words = "is finished already" if job.ended else "goes on as it is"
        changed = f"; the new submission's settings are not taken: {other}" if other else ""
        state.note(NoteKind.RESUBMITTED, spec.job, f"the job {words}{changed}")
        return
    left = [row for row in state.unread if row.whole and row.job == spec.job]
    if left:
        words = f"etcd holds a job of this name that cannot be read: {left[0].key}: {left[0].reason}"
        state.note(REFUSED, spec.job, words)
        return
    job = _again(state, job, spec) if job else Job(spec, hosts=state.hosts)
    state.jobs[spec.job] = job
    adopting.claim(state, job)
    job.reason = "submitted"
    effect = fx.StoreJob(spec.job, job.state(), spec)
    state.store(f"job/{spec.job}", effect)
    state.emit(fx.JobChanged(job.state()))
    wrong = formation.impossible(spec)
    if wrong:
        ending.end(state, job, JobPhase.FAILED, wrong)
    state.touch(job)


def _again(state: ClusterState, old: Job, spec: JobSpec) -> Job:
    was = "had failed" if old.phase is JobPhase.FAILED else "was stopped"
    state.note(
        NoteKind.TAKEN_UP_AGAIN, spec.job, f"it {was}: {old.reason.splitlines()[0] if old.reason else ''}"
    )
    formed, failed, saved = old.generations, old.recovery, old.checkpoints
    job = Job(
        spec,
        hosts=state.hosts,
        generations=Generations(
            formed.known,
            formed.number,
            formed.formed,
            lines=formed.lines,
            sharding_epoch=formed.sharding_epoch,
            replica_shard_ids=formed.replica_shard_ids,
        ),
        recovery=Recovery(incidents=failed.incidents, planned=failed.planned),
        restore=Restore(shards=old.restore.shards, known_step=old.restore.known_step),
        checkpoints=Checkpoints(
            saved.records,
            saved.begun,
            savings=saved.savings,
            collecting=saved.collecting,
            uncollected=saved.uncollected,
        ),
        numbers=Numbers(old.numbers.faults, old.numbers.skips, old.numbers.suspect_states),
    )
    if old.generation is not None:
        job.turn(old.generation)
    for member in old.members.values():
        job.add(member)
    for member in job.members.values():
        member.role, member.rank = Role.SPARE, -1
        job.changed(member)
    recall(state, job)
    return job


def recall(state: ClusterState, job: Job) -> None:
    """Add the former generation's members on nodes that have not reported yet: they may still train."""
    for seat in job.generation.seats if job.generation else ():
        if seat.node in state.nodes and state.nodes[seat.node].state == "expected":
            job.add(Member(seat.member, job.name, seat.node, Role.SPARE))
