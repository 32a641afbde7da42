"""Report checkpoints that are due and cannot be begun, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP
from controlplane.core.state import cadence

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def no_room(job: Job) -> str:
    """Return why no snapshot can be whole: some rank has no shared memory for one; "" when all have it."""
    for member in job.seating.at(job.seating.rank_sets.roomless)[:1]:
        return f"rank {member.rank} on {member.node}: {member.status.no_room if member.status else ''}"
    return ""


def miss(state: ClusterState, job: Job) -> None:
    """Report each due checkpoint as skipped while some rank has no memory for snapshots."""
    reason = no_room(job)
    if not reason or not job.spec.storage:
        return
    step = max((mb.status.step for mb in job.seated() if mb.status), default=NO_STEP)
    if step > 0:
        missed(state, job, step, reason)
    state.wake(job, state.now + state.settings.long_retry_s)


def missed(state: ClusterState, job: Job, step: int, reason: str) -> None:
    """Report, once, that the checkpoint due at `step` is skipped; nothing if none is due."""
    last = cadence.Last(
        max(job.checkpoints.begun, job.checkpoints.skipped),
        max(job.checkpoints.begun_at, job.checkpoints.skipped_at),
    )
    if not job.spec.storage or not cadence.due(job.spec, step, state.now, last, job.checkpoints.choice):
        return
    job.checkpoints.skipped, job.checkpoints.skipped_at = step, state.now
    crossed = step - step % job.spec.checkpoint_every
    name = f"{crossed if crossed > last.step else step}-{job.generation_number}"
    state.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))
