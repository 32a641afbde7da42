"""Adopt whole checkpoints that are on a storage but not in etcd, or refuse them with a reason.

After a disaster etcd is empty, and the manifests on storage are all that is left. Then every whole checkpoint
is adopted, and the job's next generation gets a number above all of theirs, so that ids never collide. When
the job already trains without them, its history is another one. Then only checkpoints of earlier generations
fit, up to the step from which the present generation started."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing
from controlplane.core.records import effects as fx

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


STEP_ADOPTED_MAX, GENERATION_ADOPTED_MAX = 1 << 50, 1_000_000_000
"""Limits for an adopted checkpoint: the job counts on from its numbers, which must fit into messages."""


def found(state: ClusterState, event: ev.CheckpointsFound) -> None:
    """Adopt or refuse each found checkpoint, and report it. Finding the same one again changes nothing."""
    job = state.jobs.get(event.job)
    known = job.checkpoints.records if job else state.unclaimed.setdefault(event.job, {})
    visible = [dataclasses.replace(record, published=True) for record in event.records]
    for record in sorted(visible, key=lambda r: (r.step, r.generation)):
        reason = _unfit(event.job, record) or _known(record, known) or (_fork(job, record) if job else "")
        if reason:
            state.emit(fx.CheckpointChanged(event.job, record.id, "refused", reason, record))
        elif record.id not in known:
            known[record.id] = record
            effect = fx.StoreCheckpoint(event.job, record)
            state.store(finalizing.queue_of(event.job), effect)
            reason = "found whole on storage" if job else "found whole on storage; its job is not here yet"
            state.emit(fx.CheckpointChanged(event.job, record.id, "adopted", reason, record))
    if job is not None:
        take_up(job)
        state.touch(job)
    elif not known:
        del state.unclaimed[event.job]


def take_up(job: Job) -> None:
    """Number the coming generations above those of the checkpoints, and count on from the newest one."""
    numbers = [record.generation for record in job.checkpoints.records.values()]
    job.generations.number = max([job.generations.number, *numbers])
    good = commit.newest_good(job.checkpoints.records.values())
    if good is not None and not job.generations.formed:
        job.checkpoints.begun = max(job.checkpoints.begun, good.step)
        job.restore.known_step = max(job.restore.known_step, good.step)


def claim(state: ClusterState, job: Job) -> None:
    """Give a submitted job the checkpoints that were found before it was submitted."""
    job.checkpoints.records.update(state.unclaimed.pop(job.name, {}))
    take_up(job)


def _unfit(job: str, record: CheckpointRecord) -> str:
    if record.job != job:
        return f"it is a checkpoint of job {record.job!r}, not of {job!r}"
    if record.step < 0 or record.generation < 1 or record.id != f"{record.step}-{record.generation}":
        return f"its id does not say step {record.step} of generation {record.generation}"
    if record.step > STEP_ADOPTED_MAX or record.generation > GENERATION_ADOPTED_MAX:
        return (
            f"a job that goes on from there runs out of numbers: it may be of step {STEP_ADOPTED_MAX} and "
            f"generation {GENERATION_ADOPTED_MAX} at most"
        )
    if not record.manifest_digest or not record.base:
        return "it names no digest or no base"
    return f"it is marked bad: {record.bad}" if record.bad else ""


def _known(record: CheckpointRecord, known: dict[str, CheckpointRecord]) -> str:
    """Return why a record clashes with the one of the same id in etcd; "" when it does not."""
    held = known.get(record.id)
    if held is None:
        return ""
    if held.manifest_digest != record.manifest_digest:
        return f"etcd holds another {record.id}: digest {held.manifest_digest}, not {record.manifest_digest}"
    return f"etcd has it marked bad: {held.bad}" if held.bad else ""


def _fork(job: Job, record: CheckpointRecord) -> str:
    """Return why a record is not part of the job's present history; "" when it may be."""
    if record.id in job.checkpoints.records:
        return ""
    if record.id in job.checkpoints.savings:
        return "a checkpoint of this id is being made right now"
    generation = job.generation
    if generation is None or not generation.store or job.ended:
        return ""
    if record.generation >= generation.number:
        return (
            f"the job trains in generation {generation.number}, which has not made it: it is of another life "
            f"of the job; adopt before the job is submitted"
        )
    if record.step > generation.resume.step:
        return (
            f"generation {generation.number} went on from step {generation.resume.step} without it; "
            "adopt before the job is submitted"
        )
    return ""
