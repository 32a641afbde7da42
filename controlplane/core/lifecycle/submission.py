"""Take a submitted job: a new one, one that goes on, or a failed or stopped one that is taken up again.

A job that is taken up again keeps its generation numbers, checkpoints and what is known of its state, and
forgets its failures. Processes of its former run may still live; they become spares without a seat, and are
ended before the job is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import adopting
from controlplane.core.lifecycle import ending
from controlplane.core.placement import formation
from controlplane.core.records import effects as fx
from controlplane.core.records.differing import differences
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


def submitted(m: ClusterState, event: ev.JobSubmitted) -> None:
    """Take a submission of a new job, or of one that has failed or was stopped.

    A job that is not over goes on unchanged: a submission with other settings is refused, an equal one only
    noted, so that a repetition does no harm. For a finished job any submission is only noted. A job whose
    records in etcd cannot be read is refused."""
    spec = event.spec
    job = m.jobs.get(spec.job)
    if job is not None and (job.phase not in (JobPhase.FAILED, JobPhase.STOPPED) or job.ending is not None):
        other = differences(job.spec, spec)
        if other and not job.ended:
            m.note(REFUSED, spec.job, f"a job of this name is {job.phase.value} with other settings: {other}")
            return
        words = "is finished already" if job.ended else "goes on as it is"
        changed = f"; the new submission's settings are not taken: {other}" if other else ""
        m.note(NoteKind.RESUBMITTED, spec.job, f"the job {words}{changed}")
        return
    left = [row for row in m.unread if row.whole and row.job == spec.job]
    if left:
        words = f"etcd holds a job of this name that cannot be read: {left[0].key}: {left[0].reason}"
        m.note(REFUSED, spec.job, words)
        return
    job = _again(m, job, spec) if job else Job(spec)
    m.jobs[spec.job] = job
    adopting.claim(m, job)
    job.reason = "submitted"
    effect = fx.StoreJob(spec.job, job.state(), spec)
    m.store(f"job/{spec.job}", effect)
    m.emit(fx.JobChanged(job.state()))
    wrong = formation.impossible(spec)
    if wrong:
        ending.end(m, job, JobPhase.FAILED, wrong)
    m.touch(job)


def _again(m: ClusterState, old: Job, spec: JobSpec) -> Job:
    was = "had failed" if old.phase is JobPhase.FAILED else "was stopped"
    m.note(NoteKind.TAKEN_UP_AGAIN, spec.job, f"it {was}: {old.reason.splitlines()[0] if old.reason else ''}")
    was_cut, failed, saved = old.generations, old.recovery, old.checkpoints
    job = Job(
        spec,
        generations=Generations(
            was_cut.known,
            was_cut.number,
            was_cut.formed,
            lines=was_cut.lines,
            cut_at=was_cut.cut_at,
            cut_words=was_cut.cut_words,
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
        numbers=Numbers(old.numbers.faults, old.numbers.skips),
    )
    if old.generation is not None:
        job.turn(old.generation)
    for member in old.members.values():
        job.add(member)
    for member in job.members.values():
        member.role, member.rank = Role.SPARE, -1
        job.changed(member)
    recall(m, job)
    return job


def recall(m: ClusterState, job: Job) -> None:
    """Add the former generation's members on nodes that have not reported yet: they may still train."""
    for seat in job.generation.seats if job.generation else ():
        if seat.node in m.nodes and m.nodes[seat.node].state == "expected":
            job.add(Member(seat.member, job.name, seat.node, Role.SPARE))
