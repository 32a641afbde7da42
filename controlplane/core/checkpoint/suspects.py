"""Mark checkpoints whose state is not trusted in etcd, and have the storage say so, too.

A checkpoint of a state that a numeric anomaly, or replicas that differ, made untrusted is bad in etcd
already (`numeric_faults.distrust`). One of a state in which replicas differed, where that is only reported,
stays good and is marked as suspect; people are shown the mark once etcd holds it. The manifest of either
stays whole and visible, so one agent puts a mark beside it, for readers that ask no coordinator. The order is
a Publish of a bad record; an agent of a version before refuses it, since it names no digest. Which marks are
written is remembered by one leader only: the next one has all of them written once more, and a mark that is
there is left as it is."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing, sharing
from controlplane.core.failures import numeric_anomalies, suspect_states
from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import some_of
from controlplane.core.state.saving import Stage

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


MARK_RETRY_MAX_S = 300.0
"""A storage that fails to take a mark is tried again after at most this long."""
DOUBLINGS_MAX = 16
_WAITS = (
    "checkpoint {} is suspect, and the storage does not say so: the agents of {} do not know how to mark it"
)


def reconcile(state: ClusterState, job: Job) -> None:
    """Write into etcd which are suspect. Order the next mark, and repeat the order of the one under way."""
    if job.numbers.suspect_states:
        _mark_in_etcd(state, job)
    record = _next(job) if job.spec.storage and (job.numbers.faults or job.numbers.suspect_states) else None
    if record is None:
        job.checkpoints.marking = None
        _waits_for(state, job, "")
        return
    if state.now < job.checkpoints.mark_again_at:
        state.wake(job, job.checkpoints.mark_again_at)
        return
    name, where = job.checkpoints.marking or ("", "")
    node = state.nodes.get(where)
    if name != record.id or node is None or node.state == "lost" or node.knows_no_marks:
        unable = [each.name for each in state.nodes.values() if each.up and each.knows_no_marks]
        where = sharing.chosen_node(state, job, last=True, without=unable)
        job.checkpoints.marking = (record.id, where)
        names = some_of(sorted(unable))
        _waits_for(state, job, "" if where or not unable else _WAITS.format(record.id, names))
    if where:
        # An agent marks what is bad; an older one publishes nothing without a digest.
        unnamed = dataclasses.replace(record, bad=record.bad or record.suspect, manifest_digest="")
        order = fx.Publish(where, job.spec, unnamed)
        state.order(job, ("suspect", where, record.id), order, state.settings.long_retry_s)


def _waits_for(state: ClusterState, job: Job, reason: str) -> None:
    if job.checkpoints.keeping.unmarked != reason:
        job.checkpoints.keeping.unmarked = reason
        state.ask_health()


def _mark_in_etcd(state: ClusterState, job: Job) -> None:
    """Queue the marks that are missing. Those in flight get theirs when they are written next."""
    known = job.checkpoints
    for record in [] if known.judging else list(known.records.values()):
        if record.bad or record.suspect or _in_flight(job, record):
            continue
        found = suspect_states.judge(job, record)
        if found is not record:
            known.judging[record.id] = None
            finalizing.put(state, job, found, partial(_held, state, job, found))


def _held(state: ClusterState, job: Job, written: CheckpointRecord) -> None:
    """etcd holds the mark: show it. The record may have been retired, or forgotten, meanwhile."""
    job.checkpoints.judging.pop(written.id, None)
    state.touch(job)
    now = job.checkpoints.records.get(written.id)
    if now is not None:
        record = job.checkpoints.records[now.id] = dataclasses.replace(now, suspect=written.suspect)
        state.emit(fx.CheckpointChanged(job.name, now.id, "suspect", written.suspect, record))


def _in_flight(job: Job, record: CheckpointRecord) -> bool:
    """Whether its manifest is on its way: an answer to a Publish would be taken for one about the mark."""
    saving = job.checkpoints.savings.get(record.id)
    return saving is not None and saving.stage is not Stage.COPY


def _next(job: Job) -> CheckpointRecord | None:
    for record in job.checkpoints.records.values():
        if record.id not in job.checkpoints.marked and _suspect(job, record):
            return record
    return None


def _suspect(job: Job, record: CheckpointRecord) -> bool:
    """Whether a checkpoint is bad because of an anomaly, or suspect in etcd, and is not to be deleted.
    Published or not: the leader may not know yet that its manifest is visible."""
    if record.bad == commit.RETIRED or not (record.bad or record.suspect):
        return False
    if not record.bad:
        return not _in_flight(job, record)
    faults = job.numbers.faults
    return any(numeric_anomalies.concerns(fault, record.step, record.generation) for fault in faults)


def published(state: ClusterState, event: ev.Published) -> None:
    """Take an agent's answer to a Publish: to the order of a mark, or to that of a manifest."""
    job = state.jobs.get(event.job)
    if job is None or not _marked(state, job, event):
        finalizing.published(state, event)


def _marked(state: ClusterState, job: Job, event: ev.Published) -> bool:
    """Take an agent's answer, if it is one to the order of a mark. Return whether it is.

    A storage that failed is tried again after ever longer times. An agent that does not know the order is not
    asked again: another one is, or its successor."""
    if job.checkpoints.marking is None or job.checkpoints.marking[0] != event.checkpoint:
        return False
    if not event.reason and not event.understood:
        return False  # late: the manifest is visible
    failures = job.checkpoints.keeping.marks
    job.checkpoints.marking = None
    state.touch(job)
    if not event.reason:
        job.checkpoints.marked[event.checkpoint] = None
        if failures.times:
            state.ask_health()
        failures.over()
    elif event.understood:
        failures.failed(state.now, f"{event.checkpoint}: {event.reason}")
        wait_s = state.settings.long_retry_s * 2.0 ** min(failures.times - 1, DOUBLINGS_MAX)
        job.checkpoints.mark_again_at = state.now + min(wait_s, MARK_RETRY_MAX_S)
        state.ask_health()
    else:
        _does_not_know(state, event)
    return True


def _does_not_know(state: ClusterState, event: ev.Published) -> None:
    node = state.nodes.get(event.node)
    if node is None or node.knows_no_marks:
        return
    node.knows_no_marks_in = node.incarnation
    version = f" (holdfast {node.version})" if node.version else ""
    words = f"its agent{version} does not know how to mark a suspect checkpoint: upgrade it; {event.reason}"
    state.note(NoteKind.MARKS_UNKNOWN, node.name, words)
