"""Begin checkpoints when they are due, and drive those in flight from stage to stage.

Only one checkpoint at a time reads the ranks' slots (stage PERSIST). Once all of its parts are durable, the
slots are free and the next one may begin, while the former is sealed and committed. So an etcd that does not
answer delays commits, but does not stop checkpoints, up to IN_FLIGHT_MAX of them. `commit.FLOWS` is the table
of stages; `finalizing` takes the agents' answers and moves a checkpoint on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import (
    adopting,
    commit,
    due,
    durability,
    finalizing,
    releasing,
    requests,
    retention,
    scrubbing,
    sharing,
    skipping,
    suspects,
)
from controlplane.core.failures import numeric_anomalies
from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state import cadence
from controlplane.core.state.saving import Saving, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

IN_FLIGHT_MAX = 4
"""How many checkpoints may wait for their commit at once."""


def reconcile(state: ClusterState, job: Job) -> None:
    """Release the snapshot that all ranks hold, begin a checkpoint that is due or requested, repeat the
    orders of those in flight, and look after retention, scrubbing and durability."""
    releasing.from_statuses(job)
    if job.phase is JobPhase.RUNNING and job.generation is not None and job.generation.store:
        _pace(state, job)
        step = releasing.reconcile(state, job)
        if step > NO_STEP:
            _begin_due(state, job, step)
        skipping.miss(state, job)
    for step in requests.wanted(job):
        if not blocked(job):
            begin(state, job, step)
    requests.reconcile(state, job)
    for saving in list(job.checkpoints.savings.values()):
        drive(state, job, saving)
    retention.reconcile(state, job)
    suspects.reconcile(state, job)
    scrubbing.reconcile(state, job)
    durability.look(state, job)


def _pace(state: ClusterState, job: Job) -> None:
    """Choose the checkpoint interval by Young and Daly (see `state.cadence`); note it when it changes."""
    if job.checkpoints.begun_at < 0:
        job.checkpoints.begun_at = job.checkpoints.watched_at = state.now
        job.recovery.incidents_before = job.recovery.incidents
    if not job.spec.checkpoint_auto or not job.spec.storage:
        return
    choice = cadence.choose(
        job.checkpoints.costs,
        job.recovery.incidents - job.recovery.incidents_before,
        state.now - job.checkpoints.watched_at,
    )
    if cadence.differs(choice, job.checkpoints.choice):
        job.checkpoints.choice = choice
        state.note(NoteKind.CADENCE, job.name, choice.reason)


def _begin_due(state: ClusterState, job: Job, step: int) -> None:
    if not due.is_due(state, job, step):
        return
    reason = blocked(job)
    if reason:
        skipping.missed(state, job, step, reason)
    else:
        begin(state, job, step)


def blocked(job: Job) -> str:
    """Return why no further checkpoint may begin now; "" when one may."""
    for saving in job.checkpoints.savings.values():
        if saving.stage is Stage.PERSIST:
            return f"checkpoint {saving.id} is still in flight ({saving.stage})"
    waiting = [each.id for each in job.checkpoints.savings.values() if each.stage is not Stage.COPY]
    if len(waiting) >= IN_FLIGHT_MAX:
        return f"{len(waiting)} checkpoints are on their way into etcd, the oldest is {waiting[0]}"
    return ""


def begin(state: ClusterState, job: Job, step: int) -> None:
    """Begin a checkpoint of the snapshot of `step`, unless it exists already or the step is not trusted."""
    number = job.generation_number
    name = f"{step}-{number}"
    if (
        name in job.checkpoints.records
        or name in job.checkpoints.savings
        or numeric_anomalies.speaks_against(job, step, number)
    ):
        return
    kind, base = commit.base_for(job.checkpoints.records.values(), step, job.spec.full_every)
    job.checkpoints.full_owed = kind == commit.FULL and job.checkpoints.collecting is not None
    if job.checkpoints.full_owed:
        # A collection deletes bases that it does not know to be in use: one opened now could lose its chunks.
        kind, base = commit.INCREMENTAL, retention.base_beside(job)
        if not base:
            reason = "old checkpoints are being deleted: there is no base to write to meanwhile"
            skipping.missed(state, job, step, reason)
            return
    held = sharing.holders(job)
    job.checkpoints.begun, job.checkpoints.begun_at = step, state.now
    job.checkpoints.wanted_now = False
    saving = Saving(
        id=name,
        step=step,
        generation=number,
        node=job.seats[0].node,
        kind=kind,
        base=base or name,
        versions=tuple((s.rank, step) for s in job.seats),
        writers=sharing.writers(state, job, held),
        holders=held,
        begun_at=state.now,
    )
    job.checkpoints.savings[name] = saving
    state.emit(fx.CheckpointChanged(job.name, name, "started", f"{kind}, on base {saving.base}"))
    drive(state, job, saving)


def drive(state: ClusterState, job: Job, saving: Saving) -> None:
    """Send and repeat the orders that a checkpoint waits for; give it up when no rank can carry them out."""
    DRIVES[saving.stage](state, job, saving)


def _drive_parts(state: ClusterState, job: Job, saving: Saving) -> None:
    for lost in commit.lacking(saving):
        if reason := sharing.gone(state, job, lost):
            other = sharing.instead(state, job, saving, lost)
            if other is None:
                finalizing.failed(state, job, saving, reason, broken=True)
                return
            state.note(NoteKind.WRITER_REPLACED, saving.id, f"{reason}: {other.member} writes its share")
            writers = tuple(other if each is lost else each for each in saving.writers)
            saving = job.checkpoints.savings[saving.id] = dataclasses.replace(saving, writers=writers)
    for writer in commit.lacking(saving):
        key = ("persist", writer.node, saving.id, writer.shard, str(writer.share))
        order = fx.Persist(
            writer.node, writer.member, job.spec, saving.id, saving.step, saving.generation, saving.kind,
            saving.base, saving.versions, writer.rank, writer.shard, writer.share, writer.shares,
        )  # fmt: skip
        state.order(job, key, order, state.settings.long_retry_s)


def _drive_on_node(state: ClusterState, job: Job, saving: Saving) -> None:
    """Order the one step that a single agent does for all; any node will do, as it works on storage alone."""
    if not state.up(saving.node):  # an unreachable node is replaced at once, before it is known to be lost
        other = sharing.chosen_node(state, job)
        if not other:
            return
        before = tuple(dict.fromkeys((*saving.nodes_before, saving.node)))
        saving = job.checkpoints.savings[saving.id] = dataclasses.replace(
            saving, node=other, nodes_before=before
        )
    key = (saving.stage.value, saving.node, saving.id)
    state.order(job, key, ORDERS_OF_STAGE[saving.stage](job, saving), state.settings.long_retry_s)


def _finalize(job: Job, saving: Saving) -> fx.Seal:
    parts = tuple(sorted(saving.parts, key=lambda part: (part.shard, part.share)))
    return fx.Seal(
        saving.node, job.spec, saving.id, saving.step, saving.generation, saving.kind, saving.base,
        saving.versions, parts,
    )  # fmt: skip


def _publish(job: Job, saving: Saving) -> fx.Publish:
    return fx.Publish(saving.node, job.spec, finalizing.record_of(saving))


def _mirror(job: Job, saving: Saving) -> fx.Mirror:
    return fx.Mirror(saving.node, job.spec, finalizing.record_of(saving))


def _drive_store(state: ClusterState, job: Job, saving: Saving) -> None:
    """Report a sealed checkpoint as provisional when etcd has not taken its record in time."""
    late = saving.stage_began_at + state.settings.provisional_after_s
    if saving.provisional or saving.stage is not Stage.STORE:
        return
    if state.now < late:
        state.wake(job, late)
        return
    job.checkpoints.savings[saving.id] = dataclasses.replace(saving, provisional=True)
    reason = f"sealed, and etcd does not have it yet: {state.trouble(finalizing.queue(job)) or 'no answer'}"
    state.emit(fx.CheckpointChanged(job.name, saving.id, "provisional", reason, saving.record))


ORDERS_OF_STAGE: dict[Stage, Callable[[Job, Saving], fx.Effect]] = {
    Stage.FINALIZE: _finalize,
    Stage.MIRROR: _mirror,
    Stage.PUBLISH: _publish,
    Stage.COPY: _mirror,
}
DRIVES: dict[Stage, Callable[[ClusterState, Job, Saving], None]] = {
    Stage.PERSIST: _drive_parts,
    Stage.FINALIZE: _drive_on_node,
    Stage.MIRROR: _drive_on_node,
    Stage.STORE: _drive_store,
    Stage.PUBLISH: _drive_on_node,
    Stage.CONFIRM: _drive_store,
    Stage.COPY: _drive_on_node,
}


def give_up(state: ClusterState, job: Job, reason: str) -> None:
    """Give up the checkpoints that are not sealed, as their ranks are going; sealed ones are committed."""
    for saving in list(job.checkpoints.savings.values()):
        if saving.record is None:
            finalizing.failed(state, job, saving, reason, broken=True)


def persist_failed(state: ClusterState, event: ev.PersistFailed) -> None:
    """Give up a checkpoint whose part an agent could not make durable, or that an agent could not seal."""
    job = state.jobs.get(event.job)
    saving = job.checkpoints.savings.get(event.checkpoint) if job else None
    if job is None or saving is None or event.node not in _asked(saving):
        state.drop(NoteKind.STALE_PERSIST_FAILED, event.checkpoint, event.reason)
        return
    finalizing.failed(state, job, saving, event.reason)


def _asked(saving: Saving) -> tuple[str, ...]:
    """Return the nodes that have an order for this checkpoint now: a failure from others is outdated."""
    if saving.stage is Stage.PERSIST:
        return tuple(writer.node for writer in commit.lacking(saving))
    return (saving.node,) if saving.stage is Stage.FINALIZE else ()


def adopt(state: ClusterState, job: Job) -> None:
    """Take up, as a new leader, the records in etcd whose manifests were never published: publish them."""
    adopting.take_up(job)
    left = [r for r in job.checkpoints.records.values() if not r.published and not r.bad]
    if not job.seats or job.ended:
        return
    for record in sorted(left, key=lambda r: (r.step, r.generation)):
        job.generations.known[record.generation] = None
        job.checkpoints.savings[record.id] = Saving(
            record.id, record.step, record.generation, job.seats[0].node, record.kind, record.base,
            record.versions, stage=Stage.PUBLISH, record=record, stage_began_at=state.now,
        )  # fmt: skip
