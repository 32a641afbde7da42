"""Tell whether a checkpoint is due, and from which step on one may be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.words import NEVER_STEP
from controlplane.core.state import cadence

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def is_due(state: ClusterState, job: Job, step: int) -> bool:
    """Whether a checkpoint of this step, which all ranks hold, is to be made now."""
    last = cadence.Last(job.checkpoints.begun, job.checkpoints.begun_at)
    due = cadence.due(job.spec, step, state.now, last, job.checkpoints.choice)
    return bool(job.spec.storage) and (due or (job.checkpoints.wanted_now and step > 0))


def kept_from(state: ClusterState, job: Job, step: int) -> int:
    """From which step on a checkpoint may be made. `step`: it is being released."""
    if not job.spec.storage:
        return NEVER_STEP
    if job.checkpoints.wanted_now or job.checkpoints.asked or is_due(state, job, step):
        return 0
    return cadence.next_due(job.spec, step, job.checkpoints.begun)
