"""Pause and resume jobs for people, and take a checkpoint when they ask for one.

A paused job's ranks stop at the end of a step and hold their state at the barrier. A pause is a mark on the
job, in etcd beside its state. A job that trains halts at its next step boundary; a recovery that is under way
first brings every rank to the barrier, and the job is paused there. Failures during the pause are judged as
always; only the next generation is not formed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing, saving, skipping
from controlplane.core.elasticity import resizing
from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.recovery import incident_record

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

HELD = (JobPhase.RUNNING, JobPhase.PAUSED)
"""Phases in which all ranks may hold a snapshot of the same step."""


def requested(state: ClusterState, event: ev.PauseRequested) -> None:
    """Pause (`on`) or resume a job, or refuse it with a note. A repetition changes nothing."""
    job = state.jobs.get(event.job)
    reason = _hopeless(state, job, event.on)
    if job is None or reason:
        state.note(NoteKind.PAUSE_REFUSED, event.job, reason)
        return
    if bool(job.changes.pause) == event.on:
        state.note(
            NoteKind.PAUSING if event.on else NoteKind.RESUMED,
            job.name,
            f"already: {job.changes.pause or 'it is not paused'}",
        )
        return
    job.changes.pause = event.reason if event.on else ""
    state.note(NoteKind.PAUSING if event.on else NoteKind.RESUMED, job.name, event.reason)
    if not event.on and job.phase is JobPhase.PAUSED:
        state.set_phase(job, JobPhase.STOPPING, f"resumed: {event.reason}")
    _store(state, job)
    state.touch(job)


def _hopeless(state: ClusterState, job: Job | None, on: bool) -> str:
    if job is None:
        return "there is no job of this name"
    if job.ended or job.ending is not None:
        return "the job is at its end"
    if on and job.phase is JobPhase.LEAVING:
        return "its training is over: what its scripts do behind it has no step boundary to stop at"
    plain = (
        job.phase is JobPhase.RUNNING
        and state.now >= job.generations.launched_at + state.settings.plain_after_s
    )
    if on and not job.elastic and plain:
        return "its script does not use the SDK: it has no step boundary to stop at; `holdfast stop` ends it"
    return ""


def _store(state: ClusterState, job: Job) -> None:
    state.store(f"job/{job.name}", fx.StoreJob(job.name, job.kept()))


def reconcile(state: ClusterState, job: Job) -> None:
    """Halt a job that is to be paused once all its ranks train; begin a checkpoint that people wait for."""
    if job.changes.pause and job.phase is JobPhase.RUNNING and resizing.calm(job):
        resizing.stay(state, job, f"paused: {job.changes.pause}")
    if job.checkpoints.wanted_now and job.phase in HELD:
        _begin(state, job)


def rest(state: ClusterState, job: Job) -> None:
    """Enter PAUSED: every rank is at the barrier, and the open incident, if there is one, is over."""
    if job.phase is JobPhase.PAUSED:
        return
    state.set_phase(job, JobPhase.PAUSED, f"paused: {job.changes.pause}")
    if job.recovery.incident is not None:
        incident_record.close(state, job, "recovered", {"fence": state.now - job.recovery.clock.judged})
        job.recovery.counted = {}
    _store(state, job)


def checkpoint(state: ClusterState, event: ev.CheckpointWanted) -> None:
    """Begin a checkpoint of the newest whole snapshot, or of the next one when that is durable already;
    refused with a note when the job cannot have one."""
    job = state.jobs.get(event.job)
    reason = _unsavable(job)
    if job is None or reason:
        state.note(NoteKind.CHECKPOINT_REFUSED, event.job, reason)
        return
    job.checkpoints.wanted_now = True
    begun = _begin(state, job)
    waits = "" if begun else "the newest snapshot is durable already, or none is whole: the next one is taken"
    state.note(NoteKind.CHECKPOINT_BEGUN if begun else NoteKind.CHECKPOINT_WAITS, job.name, begun or waits)
    state.touch(job)


def _unsavable(job: Job | None) -> str:
    if job is None:
        return "there is no job of this name"
    if job.ended or job.ending is not None:
        return "the job is at its end"
    if job.phase is JobPhase.LEAVING:
        return "its training is over, and its final state is saved"
    if not job.spec.storage:
        return "the job has no storage: give it one with --storage URL when it is submitted"
    if not job.spec.snapshot_every or (job.generation is not None and not job.elastic):
        return "its script does not use the SDK: there is no state to save"
    return skipping.no_room(job)


def _begin(state: ClusterState, job: Job) -> str:
    """Begin a checkpoint of the newest whole snapshot; returns its id, "" while none can begin.

    Ranks that decide themselves what they overwrite may have overwritten it: there `saving` takes the next
    one that they keep."""
    if job.snapshots.by_ranks and job.phase is JobPhase.RUNNING:
        return ""
    releasing.from_statuses(job)
    step = releasing.common(job) if len(job.snapshots.held) == len(job.seats) else NO_STEP
    name = f"{step}-{job.generation_number}"
    if step <= 0 or name in job.checkpoints.records or name in job.checkpoints.savings or saving.blocked(job):
        return ""
    saving.begin(state, job, step)
    return name if name in job.checkpoints.savings else ""
