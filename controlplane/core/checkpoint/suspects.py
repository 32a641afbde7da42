"""Have the storage say which of its checkpoints are suspect, for readers that ask no coordinator.

A checkpoint of a state that a numeric anomaly, or replicas that differ, made untrusted is bad in etcd already
(`numeric_faults.distrust`). Its manifest stays whole and visible, so one agent puts a mark beside it. The
order is a Publish of a bad record; an agent of a version before refuses it, since it names no digest. Which
marks are written is remembered by one leader only: the next one has all of them written once more, and a mark
that is there is left as it is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, sharing
from controlplane.core.failures import numeric_anomalies
from controlplane.core.records import effects as fx

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def reconcile(state: ClusterState, job: Job) -> None:
    """Order the next mark, and repeat the order of the one that is under way."""
    record = _next(job) if job.spec.storage and job.numbers.faults else None
    if record is None:
        job.checkpoints.marking = None
        return
    name, where = job.checkpoints.marking or ("", "")
    node = state.nodes.get(where)
    if name != record.id or node is None or node.state == "lost":
        where = sharing.chosen_node(state, job, last=True)
        job.checkpoints.marking = (record.id, where)
    if where:
        unnamed = dataclasses.replace(record, manifest_digest="")  # an older agent publishes nothing by it
        order = fx.Publish(where, job.spec, unnamed)
        state.order(job, ("suspect", where, record.id), order, state.settings.long_retry_s)


def _next(job: Job) -> CheckpointRecord | None:
    for record in job.checkpoints.records.values():
        if record.id not in job.checkpoints.marked and _suspect(job, record):
            return record
    return None


def _suspect(job: Job, record: CheckpointRecord) -> bool:
    """Whether a checkpoint is bad because of an anomaly, and is not to be deleted. Published or not: the
    leader may not know yet that its manifest is visible."""
    if record.bad in ("", commit.RETIRED):
        return False
    faults = job.numbers.faults
    return any(numeric_anomalies.concerns(fault, record.step, record.generation) for fault in faults)


def marked(state: ClusterState, job: Job, event: ev.Published) -> bool:
    """Take an agent's answer, if it is one to the order of a mark. Return whether it is.

    A mark that could not be written is ordered again when the order would be repeated."""
    if job.checkpoints.marking is None or job.checkpoints.marking[0] != event.checkpoint:
        return False
    if not event.reason:
        job.checkpoints.marked[event.checkpoint], job.checkpoints.marking = None, None
        state.touch(job)
    return True
