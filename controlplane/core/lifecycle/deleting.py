"""Forget an ended job because people ask for it: its records in etcd go, its checkpoints stay on storage.

The deletion goes through the job's own queue of writes, so that a job of the same name that is submitted
meanwhile is written after it. A leader that dies before etcd has taken it leaves the job as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing
from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import some_of
from controlplane.core.restore import keepers
from holdfast import masking

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def requested(state: ClusterState, event: ev.JobDeleteRequested) -> None:
    """Forget a job that has ended and left nothing on its nodes, or refuse that with a note."""
    job = state.jobs.get(event.job)
    reason = _unknown(state, event.job) if job is None else _busy(state, job)
    if job is None or reason:
        state.note(NoteKind.DELETE_REFUSED, event.job, reason)
        return
    state.store(f"job/{job.name}", fx.ForgetJob(job.name, tuple(job.checkpoints.records)))
    del state.jobs[job.name]
    state.dirty.pop(job.name, None)
    state.diagnosed.pop(job.name, None)
    state.ask_health()
    state.note(NoteKind.JOB_DELETED, job.name, left(job))


def _unknown(state: ClusterState, name: str) -> str:
    unread = [row for row in state.unread if row.whole and row.job == name]
    if unread:
        return f"its records in etcd cannot be read ({unread[0].reason}): delete {unread[0].key} in etcd"
    return "there is no job of this name"


def _busy(state: ClusterState, job: Job) -> str:
    """Return what has to end before the job can be forgotten; "": nothing."""
    if job.ending is not None:
        return "it is about to end: try again in a moment"
    if not job.ended:
        return f"it is {job.phase.value}: end it first, with `holdfast stop {job.name}`"
    living = {member.node for member in job.members.values() if member.alive}
    keeping = {node.name for node in keepers.of(state, job.name)}
    nodes = sorted(name for name in living | keeping if state.up(name))
    if nodes:
        return f"its processes or copies are still being removed on {some_of(nodes)}: try again"
    if job.checkpoints.savings or state.in_flight(f"job/{job.name}"):
        return "its end is not in etcd yet: try again in a moment"
    if job.checkpoints.collecting or state.in_flight(finalizing.queue_of(job.name)):
        return "its checkpoints are being recorded or deleted: try again in a moment"
    return ""


def left(job: Job) -> str:
    """Say what stays when the records of a job are gone, and where."""
    kept, storage = len(job.checkpoints.records), job.spec.storage
    if not kept:
        return "it has no checkpoints"
    places = " and ".join(masking.url(url).rstrip("/") for url in (storage, job.spec.mirror) if url)
    good = commit.newest_good(job.checkpoints.records.values())
    newest = f" (newest: {good.id})" if good is not None else ""
    many = f"{kept} checkpoints stay" if kept > 1 else "1 checkpoint stays"
    return (
        f"{many} in jobs/{job.name} of {places}{newest}; a new job of this name begins without them, "
        f"unless `holdfast checkpoint adopt` comes before it is submitted"
    )
