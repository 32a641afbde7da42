"""Have the newest checkpoint read again from time to time, so that damage is found before a restore needs it.

One agent reads it and repairs damaged chunks. A checkpoint that cannot be repaired is marked bad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing, sharing
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def reconcile(state: ClusterState, job: Job) -> None:
    """Order the next scrub when it is due, and repeat the order of the one under way."""
    good = commit.newest_good(job.checkpoints.records.values())
    every = job.spec.scrub_every_s
    if not job.spec.storage or every <= 0 or good is None or job.phase is not JobPhase.RUNNING:
        return
    if job.checkpoints.scrubbed_at < 0:
        job.checkpoints.scrubbed_at = state.now
    if not job.checkpoints.scrubbing:
        if state.now < job.checkpoints.scrubbed_at + every:
            state.wake(job, job.checkpoints.scrubbed_at + every)
            return
        job.checkpoints.scrubbing = (good.id, sharing.chosen_node(state, job, last=True))
    _drive(state, job)


def _drive(state: ClusterState, job: Job) -> None:
    name, where = job.checkpoints.scrubbing or ("", "")
    record = job.checkpoints.records.get(name)
    if record is None or record.bad:
        _over(state, job)
        return
    node = state.nodes.get(where)
    if node is None or node.state == "lost":
        where = sharing.chosen_node(state, job, last=True)
        job.checkpoints.scrubbing = (name, where)
    if where:
        order = fx.Scrub(where, job.spec, record)
        state.order(job, ("scrub", where, name), order, state.settings.long_retry_s)


def _over(state: ClusterState, job: Job) -> None:
    job.checkpoints.scrubbing, job.checkpoints.scrubbed_at = None, state.now
    state.touch(job)


def scrubbed(state: ClusterState, event: ev.Scrubbed) -> None:
    """Take an agent's answer: the checkpoint is whole, was repaired, could not be read, or is bad."""
    job = state.jobs.get(event.job)
    if job is None or job.checkpoints.scrubbing is None or job.checkpoints.scrubbing[0] != event.checkpoint:
        state.drop(NoteKind.STALE_SCRUBBED, event.checkpoint, "it is not being read again")
        return
    _over(state, job)
    record = job.checkpoints.records.get(event.checkpoint)
    if record is None or record.bad:
        return
    if event.repaired:
        reason = f"{event.repaired} chunks had rotted and were written anew"
        state.emit(fx.CheckpointChanged(job.name, record.id, "repaired", reason, record))
    if event.corrupt:
        finalizing.mark_bad(state, job, record.id, event.reason or "its bytes are not what was written")
    elif event.reason:
        state.note(NoteKind.SCRUB_FAILED, record.id, event.reason)
