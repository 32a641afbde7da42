"""Take agents' answers about a checkpoint in flight, and move it stage by stage to its commit.

The commit is the moment when etcd holds the record. When a leader dies before it, only unused files are left.
After it, every later leader goes on: `saving.adopt` publishes a manifest that is not visible yet. Orders
repeat, so answers may come twice or late: one that does not fit the stage is dropped, and one that
contradicts the order fails the checkpoint. Records go into etcd through one queue per job, in order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, durability, requests
from controlplane.core.failures import suspect_states
from controlplane.core.records import effects as fx
from controlplane.core.records.model import WHOLE_STATE, CheckpointRecord
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.saving import Saving, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

UPLOAD_KEPT = 0.5
"""Weight of the earlier uploads in the moving average of an upload's time."""


def queue(job: Job) -> str:
    """Return the name of the write queue of a job's checkpoint records."""
    return queue_of(job.name)


def queue_of(job: str) -> str:
    """Return the same for the job of this name."""
    return f"checkpoints/{job}"


def put(
    state: ClusterState, job: Job, record: CheckpointRecord, then: Callable[[], None] | None = None
) -> None:
    """Queue a write of this record into etcd; `then` is called once etcd holds it."""
    state.store(queue(job), fx.StoreCheckpoint(job.name, record), then)


def record_of(saving: Saving) -> CheckpointRecord:
    """Return the record of a sealed checkpoint. Raises AssertionError when it is not sealed."""
    if saving.record is None:
        raise AssertionError(f"checkpoint {saving.id} has no record in stage {saving.stage}")
    return saving.record


def part_persisted(state: ClusterState, event: ev.PartPersisted) -> None:
    """Record that a writer's share is durable; the last one moves the checkpoint on to be sealed."""
    part = event.part
    job = state.jobs.get(part.job)
    saving = job.checkpoints.savings.get(part.checkpoint) if job else None
    if job is None or (saving is None and part.checkpoint in job.checkpoints.records):
        state.drop(NoteKind.STALE_PART, part.checkpoint, f"job {part.job} waits for no part of it")
        return
    refusal = commit.refuse_part(part, saving, job.generations.known)
    if refusal or saving is None:
        _refused(state, job, part.checkpoint, refusal)
        return
    if saving.stage is not Stage.PERSIST or commit.taken(part, saving):
        state.drop(NoteKind.STALE_PART, part.checkpoint, f"share {part.share} of {part.shard} is in already")
        return
    saving = job.checkpoints.savings[saving.id] = dataclasses.replace(saving, parts=(*saving.parts, part))
    if not commit.lacking(saving):
        advance(state, job, saving, stage_began_at=state.now)


def _refused(state: ClusterState, job: Job, name: str, reason: str) -> None:
    """Refuse an answer: one about a checkpoint in flight fails that checkpoint, others are counted and noted.

    Agents repeat to a new leader what they reported to the former one, so answers about checkpoints that etcd
    holds already are ignored."""
    saving = job.checkpoints.savings.get(name)
    if saving is not None:
        state.counts["refused_checkpoint"] = state.counts.get("refused_checkpoint", 0) + 1
        failed(state, job, saving, reason)
    elif name not in job.checkpoints.records:
        state.drop(NoteKind.REFUSED_CHECKPOINT, name, reason)


def advance(state: ClusterState, job: Job, saving: Saving, **changes: object) -> None:
    """Move a checkpoint to its next stage with these `changes`, or out of flight after the last one."""
    stage = commit.after(saving.stage, job.spec)
    state.touch(job)
    if stage is None:
        del job.checkpoints.savings[saving.id]
        return
    saving = dataclasses.replace(saving, stage=stage, **changes)  # type: ignore[arg-type]
    if stage in (Stage.STORE, Stage.CONFIRM):
        saving = dataclasses.replace(saving, record=suspect_states.judge(job, record_of(saving)))
    job.checkpoints.savings[saving.id] = saving
    if stage is Stage.STORE:
        put(state, job, record_of(saving), lambda: _committed(state, job, saving.id))
    elif stage is Stage.CONFIRM:
        put(state, job, record_of(saving), lambda: _confirmed(state, job, saving.id))


def persisted(state: ClusterState, event: ev.Persisted) -> None:
    """Take the record of a sealed checkpoint, if it is what was ordered and covers every rank."""
    record = event.record
    job = state.jobs.get(record.job)
    if job is None:
        state.drop(NoteKind.STALE_PERSISTED, record.id, f"job {record.job} is unknown here")
        return
    saving = job.checkpoints.savings.get(record.id)
    if (saving is not None and saving.stage not in (Stage.PERSIST, Stage.FINALIZE)) or (
        saving is None and record.id in job.checkpoints.records
    ):
        state.drop(NoteKind.STALE_PERSISTED, record.id, "it was taken already")
        return
    refusal = commit.refuse(record, saving, job.generations.known)
    if refusal or saving is None:
        _refused(state, job, record.id, refusal)
        return
    took_s = state.now - saving.begun_at
    costs = job.checkpoints.costs
    costs.upload_s = UPLOAD_KEPT * (costs.upload_s or took_s) + (1 - UPLOAD_KEPT) * took_s
    costs.newest_upload_s, costs.uploads = took_s, costs.uploads + 1
    record = dataclasses.replace(record, published=False, bad="", shards=_shards(saving))
    advance(state, job, saving, record=record, stage_began_at=state.now)


def _shards(saving: Saving) -> tuple[str, ...]:
    words = sorted(dict.fromkeys(writer.shard for writer in saving.writers))
    return () if words == [WHOLE_STATE] else tuple(words)


def mirrored(state: ClusterState, event: ev.Mirrored) -> None:
    """Take the answer whether the second storage holds the checkpoint: move it on, or fail it."""
    job = state.jobs.get(event.job)
    saving = job.checkpoints.savings.get(event.checkpoint) if job else None
    if job is None or saving is None or saving.stage not in (Stage.MIRROR, Stage.COPY):
        state.drop(NoteKind.STALE_MIRRORED, event.checkpoint, "it is not to be mirrored now")
        return
    if event.reason:
        failed(state, job, saving, f"the second storage does not hold it: {event.reason}")
        return
    if saving.stage is Stage.COPY:
        durability.copied(state, job, "")
        state.emit(fx.CheckpointChanged(job.name, saving.id, "mirrored", job.spec.mirror, saving.record))
        advance(state, job, saving)
    else:
        advance(state, job, saving, stage_began_at=state.now)


def _committed(state: ClusterState, job: Job, name: str) -> None:
    """etcd holds the record: from here on the checkpoint exists for every later leader."""
    saving = job.checkpoints.savings.get(name)
    if saving is not None and saving.stage is Stage.STORE:
        job.checkpoints.records[name] = record_of(saving)
        advance(state, job, saving, provisional=False)


def published(state: ClusterState, event: ev.Published) -> None:
    """Take the answer whether the manifest is visible; the checkpoint counts once etcd knows so."""
    job = state.jobs.get(event.job)
    saving = job.checkpoints.savings.get(event.checkpoint) if job else None
    if job is None or saving is None or saving.stage is not Stage.PUBLISH:
        state.drop(NoteKind.STALE_PUBLISHED, event.checkpoint, "it is not the one to be published now")
        return
    if event.reason:
        failed(state, job, saving, event.reason)
        return
    advance(state, job, saving, record=dataclasses.replace(record_of(saving), published=True))


def _confirmed(state: ClusterState, job: Job, name: str) -> None:
    saving = job.checkpoints.savings.get(name)
    if saving is None or saving.stage is not Stage.CONFIRM:
        return
    record = record_of(saving)
    job.checkpoints.records[name] = record
    job.checkpoints.commits += 1
    reason = f"step {record.step}, {record.kind}"
    durability.committed(state, job)
    report(state, job, fx.CheckpointChanged(job.name, name, "committed", reason, record))
    if record.suspect:
        state.emit(fx.CheckpointChanged(job.name, name, "suspect", record.suspect, record))
    advance(state, job, saving)


def coming(state: ClusterState, job: Job, step: int, *, suspect: bool = True) -> str:
    """Return the id of a checkpoint newer than `step` whose parts are all durable; "" when there is none.

    It should be committed soon, so a restore waits for it, but no longer than `commit_wait_s`. `suspect`: it
    may be of a suspect state."""
    for saving in reversed(job.checkpoints.savings.values()):
        if saving.step <= step or saving.stage in (Stage.PERSIST, Stage.COPY):
            continue
        if not suspect and suspect_states.suspected(job, saving.step, saving.generation):
            continue
        node = state.nodes.get(saving.node)  # the time in which this node was away does not count
        until = max(saving.stage_began_at, node.up_since if node else 0.0) + state.settings.commit_wait_s
        if state.now < until:
            state.wake(job, until)
            return saving.id
    return ""


def report(state: ClusterState, job: Job, changed: fx.CheckpointChanged) -> None:
    """Report what became of a checkpoint: to people, and to the scripts that requested it."""
    state.emit(changed)
    requests.settle(job, changed.checkpoint, changed.outcome, changed.reason)


def failed(state: ClusterState, job: Job, saving: Saving, reason: str, *, broken: bool = False) -> None:
    """Give up a checkpoint in flight, with the reason. A committed one that was only being copied to the
    second storage stays committed. A record that etcd may hold without a manifest is marked bad there.

    `broken`: ranks or nodes are gone; then it does not count as a failure of the storage."""
    del job.checkpoints.savings[saving.id]
    state.touch(job)
    if saving.stage is Stage.COPY:
        durability.copied(state, job, reason)
        state.emit(fx.CheckpointChanged(job.name, saving.id, "unmirrored", reason, saving.record))
        return
    if saving.record is not None and saving.stage in commit.IN_ETCD:
        record = commit.as_bad(
            dataclasses.replace(saving.record, published=False), f"never published: {reason}"
        )
        job.checkpoints.records[saving.id] = record
        put(state, job, record)
    if not broken:
        durability.failed(state, job, reason)
    report(state, job, fx.CheckpointChanged(job.name, saving.id, "failed", reason))


def mark_bad(state: ClusterState, job: Job, name: str, reason: str) -> None:
    """Mark a checkpoint bad, in etcd too: it is never used again."""
    record = commit.as_bad(job.checkpoints.records[name], reason)
    job.checkpoints.records[name] = record
    put(state, job, record)
    state.emit(fx.CheckpointChanged(job.name, name, "bad", reason, record))
