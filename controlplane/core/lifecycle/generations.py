"""Commit a generation: make it the job's own once etcd holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing
from controlplane.core.recovery import incident_record
from controlplane.core.restore import sharding

if TYPE_CHECKING:
    from controlplane.core.records.model import Generation
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def commit(state: ClusterState, job: Job, generation: Generation) -> bool:
    """Make a generation that etcd holds the job's own. False when another decision overtook it meanwhile:
    then only its number is remembered, because etcd has it."""
    job.generations.known[generation.number] = None
    if job.generations.storing is not generation:
        return False
    if job.generation is not None and job.generation.world_size != generation.world_size:
        sharding.relabel(job, generation)
    incident_record.came(job, generation.seats)
    job.turn(generation)
    job.generations.storing, job.recovery.clock.stored = None, state.now
    releasing.begin(job)
    return True
