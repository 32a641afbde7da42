"""The one checkpoint of a job that may be in flight: snapshot, persist, commit, publish."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core import commit
from controlplane.core import effects as fx
from controlplane.core.commit import Saving, Stage
from controlplane.core.model import NO_STEP, JobPhase, MemberPhase

if TYPE_CHECKING:
    from controlplane.core import events as ev
    from controlplane.core.job import Job, Member
    from controlplane.core.machine import Machine
    from controlplane.core.model import CheckpointRecord, MemberStatus


def snapshot(m: Machine, event: ev.SnapshotReady) -> None:
    """A slot is READY: one more rank has this step."""
    job = m.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.rank < 0 or member.dead:
        m.drop("stale_snapshot", event.member, "it has no seat here")
        return
    if job.generation is None or event.generation != job.generation.number:
        m.drop("stale_snapshot", event.member, f"generation {event.generation} is not the current one")
        return
    _have(job, member.rank, event.step)
    m.touch(job)


def _have(job: Job, rank: int, step: int) -> None:
    """A rank has two slots: the newest two steps that it told of are what it holds."""
    held = job.snapshots.get(rank, ())
    if step not in held:
        job.snapshots[rank] = tuple(sorted((*held, step)))[-2:]
    job.known_step = max(job.known_step, step)


def tend(m: Machine, job: Job) -> None:
    """Release what all ranks have, begin a checkpoint when one is due, drive the one in flight."""
    _from_statuses(job)
    if job.phase is JobPhase.RUNNING and job.generation is not None and job.generation.store:
        whole = len(job.snapshots) == len(job.seats)
        step = _common(job) if whole else _newest_behind(job, job.generation.resume.step)
        if step > job.released:
            _release(m, job, step, whole)
        else:
            _release_again(m, job)
        _miss(m, job)
    if job.saving is not None:
        drive(m, job)


def _newest_behind(job: Job, step: int) -> int:
    """The newest snapshot of an earlier generation: its older slots may go, or no rank finds room."""
    slots = [mb.status.snapshot_step for mb in job.seated() if mb.status]
    return max((slot for slot in slots if slot <= step), default=-1)


def _common(job: Job) -> int:
    """The newest step that every rank holds; NO_STEP when there is none, or it is void."""
    held = [set(steps) for steps in job.snapshots.values()]
    common = max(set.intersection(*held), default=NO_STEP)
    return common if common > job.voided else NO_STEP


def _from_statuses(job: Job) -> None:
    """Beats repair lost reports."""
    if job.generation is None:
        return
    for member in job.seated():
        status = member.status
        if status and not member.dead and status.snapshot_generation == job.generation.number:
            _have(job, member.rank, status.snapshot_step)


def _release(m: Machine, job: Job, step: int, whole: bool) -> None:
    """All ranks have this step: as a snapshot, or (not `whole`) alive, just after they formed."""
    job.released = step
    for node in job.seat_nodes():
        m.emit(fx.Release(node, job.name, step))
    if not whole or not job.spec.storage or not commit.due(step, job.begun, job.spec.checkpoint_every):
        return
    if job.saving is None:
        begin(m, job, step)
    elif commit.due(step, job.skipped, job.spec.checkpoint_every):
        job.skipped = step
        name = f"{step}-{job.generation.number if job.generation else 0}"
        reason = f"checkpoint {job.saving.id} is still in flight ({job.saving.stage})"
        m.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))


def _release_again(m: Machine, job: Job) -> None:
    """A rank that is two snapshots on and made none has missed the release; or the others have passed
    over the one that it holds: that one is void then, so that all can go on from the next."""
    for member in job.seated():
        status = member.status
        if status is None or not _behind(job, status):
            continue
        nodes = [member.node]
        if status.snapshot_step > job.released:
            _void(m, job, _passed_over(job))
            nodes = job.seat_nodes()
        for node in nodes if max(job.released, job.voided) > NO_STEP else []:
            key = ("release", node, str(job.released), str(job.voided))
            order = fx.Release(node, job.name, job.released, job.voided)
            m.order(job, key, order, m.settings.long_retry_s)


def _void(m: Machine, job: Job, step: int) -> None:
    """No snapshot up to this step will be whole any more: a checkpoint that was to be made of one is not."""
    if step <= job.voided:
        return
    job.voided = step
    every = job.spec.checkpoint_every
    if job.spec.storage and commit.due(step, max(job.begun, job.skipped), every):
        job.skipped = step
        name = f"{step - step % every}-{job.generation.number if job.generation else 0}"
        reason = "a rank had no room for its snapshot, so that not every rank has one of this step"
        m.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))


def no_room(job: Job) -> str:
    """Why no snapshot of this job can be whole: a rank has no shared memory. "" when all have."""
    for member in job.seated():
        if member.status is not None and not member.dead and member.status.no_room:
            return f"rank {member.rank} on {member.node}: {member.status.no_room}"
    return ""


def _miss(m: Machine, job: Job) -> None:
    """Without room there is no checkpoint, and training goes on: each one that was due is told."""
    reason = no_room(job)
    if not reason or not job.spec.storage:
        return
    step = max((mb.status.step for mb in job.seated() if mb.status), default=NO_STEP)
    every = job.spec.checkpoint_every
    if step > 0 and commit.due(step, max(job.begun, job.skipped), every):
        job.skipped = step
        name = f"{step - step % every}-{job.generation.number if job.generation else 0}"
        m.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))
    m.wake(job, m.now + m.settings.long_retry_s)


def _passed_over(job: Job) -> int:
    """The newest snapshot that some rank made and another has surely left out; NO_STEP when there is none."""
    steps = [step for held in job.snapshots.values() for step in held if step > job.released]
    return max(
        (step for step in steps if any(_left_out(job, mb, step) for mb in job.seated())), default=NO_STEP
    )


def _left_out(job: Job, member: Member, step: int) -> bool:
    status = member.status
    if status is None or step in job.snapshots.get(member.rank, ()):
        return False
    if status.phase is MemberPhase.FINISHED:
        return status.held_step > step
    return status.step >= step + job.spec.snapshot_every


def _behind(job: Job, status: MemberStatus) -> bool:
    """Whether it found no room for a snapshot that it should have made since its newest."""
    newest = max(status.snapshot_step, job.released)
    if status.phase is MemberPhase.FINISHED and newest < status.held_step:
        return True
    return status.step >= newest + 2 * job.spec.snapshot_every


def begin(m: Machine, job: Job, step: int, final: bool = False) -> None:
    """Have seat 0's node make the snapshot of `step` durable."""
    number = job.generation.number if job.generation else 0
    kind, base = commit.base_for(job.checkpoints.values(), step, job.spec.full_every)
    name = f"{step}-{number}"
    if name in job.checkpoints:
        return
    seat = job.seats[0]
    job.begun = step
    job.saving = Saving(
        id=name,
        step=step,
        generation=number,
        node=seat.node,
        member=seat.member,
        kind=kind,
        base=base or name,
        versions=tuple((s.rank, step) for s in job.seats),
        final=final,
    )
    m.emit(fx.CheckpointChanged(job.name, name, "started", f"{kind}, on base {job.saving.base}"))
    drive(m, job)


def drive(m: Machine, job: Job) -> None:
    """Repeat the order that the checkpoint in flight waits for; fail it when its node is gone."""
    saving = job.saving
    if saving is None or saving.stage not in (Stage.PERSIST, Stage.PUBLISH):
        return
    node = m.nodes.get(saving.node)
    if node is None or node.state == "lost":
        failed(m, job, f"node {saving.node} is lost")
        return
    member = job.members.get(saving.member)
    if saving.stage is Stage.PERSIST and (member is None or (member.dead and member.status is None)):
        failed(m, job, f"the snapshot of {saving.member} is gone with its agent")
        return
    key = (saving.stage.value, saving.node, saving.id)
    m.order(job, key, _order(job, saving), m.settings.long_retry_s)


def _order(job: Job, saving: Saving) -> fx.Persist | fx.Publish:
    if saving.stage is Stage.PUBLISH and saving.record is not None:
        return fx.Publish(saving.node, job.spec, saving.record)
    return fx.Persist(
        node=saving.node,
        member=saving.member,
        spec=job.spec,
        checkpoint=saving.id,
        step=saving.step,
        generation=saving.generation,
        kind=saving.kind,
        base=saving.base,
        versions=saving.versions,
    )


def failed(m: Machine, job: Job, reason: str) -> None:
    """Give the checkpoint in flight up, and say why."""
    saving, job.saving = job.saving, None
    if saving is None:
        return
    if saving.record is not None and not saving.record.published:
        record = commit.as_bad(saving.record, f"never published: {reason}")
        job.checkpoints[saving.id] = record
        m.store(f"checkpoint/{job.name}/{saving.id}", fx.Store(0, 0, job=job.name, checkpoint=record))
    m.emit(fx.CheckpointChanged(job.name, saving.id, "failed", reason))
    m.touch(job)


def persisted(m: Machine, event: ev.Persisted) -> None:
    """Chunks are durable: commit the record, if it is what was asked for and covers every rank."""
    record = event.record
    job = m.jobs.get(record.job)
    if job is None:
        m.drop("stale_persisted", record.id, f"job {record.job} is unknown here")
        return
    saving = job.saving
    if saving is not None and saving.id == record.id and saving.stage is not Stage.PERSIST:
        m.drop("stale_persisted", record.id, "it was taken already")
        return
    refusal = commit.refuse(record, saving, job.known)
    if refusal or saving is None:
        m.counts["refused_checkpoint"] = m.counts.get("refused_checkpoint", 0) + 1
        if saving is not None and saving.id == record.id:
            failed(m, job, refusal)
        elif record.id not in job.checkpoints:
            m.emit(fx.CheckpointChanged(job.name, record.id, "failed", refusal))
        return
    record = dataclasses.replace(record, published=False, bad="")
    job.saving = dataclasses.replace(saving, stage=Stage.STORE, record=record)
    effect = fx.Store(0, 0, job=job.name, checkpoint=record)
    m.store(f"checkpoint/{job.name}/{record.id}", effect, lambda: _committed(m, job, record))


def _committed(m: Machine, job: Job, record: CheckpointRecord) -> None:
    if job.saving is None or job.saving.id != record.id:
        return
    job.checkpoints[record.id] = record
    job.saving = dataclasses.replace(job.saving, stage=Stage.PUBLISH)
    m.touch(job)


def persist_failed(m: Machine, event: ev.PersistFailed) -> None:
    """The agent could not make it durable."""
    job = m.jobs.get(event.job)
    saving = job.saving if job else None
    if job is None or saving is None or saving.id != event.checkpoint or saving.stage is not Stage.PERSIST:
        m.drop("stale_persist_failed", event.checkpoint, event.reason)
        return
    failed(m, job, event.reason)


def published(m: Machine, event: ev.Published) -> None:
    """The manifest is visible: the checkpoint is good once etcd knows."""
    job = m.jobs.get(event.job)
    saving = job.saving if job else None
    if job is None or saving is None or saving.id != event.checkpoint or saving.stage is not Stage.PUBLISH:
        m.drop("stale_published", event.checkpoint, "it is not the one to be published now")
        return
    if event.reason or saving.record is None:
        failed(m, job, event.reason)
        return
    record = dataclasses.replace(saving.record, published=True)
    job.saving = dataclasses.replace(saving, stage=Stage.CONFIRM, record=record)
    effect = fx.Store(0, 0, job=job.name, checkpoint=record)
    m.store(f"checkpoint/{job.name}/{record.id}", effect, lambda: _confirmed(m, job, record))


def _confirmed(m: Machine, job: Job, record: CheckpointRecord) -> None:
    job.checkpoints[record.id] = record
    if job.saving is not None and job.saving.id == record.id:
        job.saving = None
    m.emit(
        fx.CheckpointChanged(job.name, record.id, "committed", f"step {record.step}, {record.kind}", record)
    )
    m.touch(job)


def adopt(m: Machine, job: Job) -> None:
    """After an election: a record that etcd holds and that was never published is published now."""
    left = [r for r in job.checkpoints.values() if not r.published and not r.bad]
    if not left or not job.seats or job.ended:
        return
    record = max(left, key=lambda r: (r.step, r.generation))
    job.known[record.generation] = None
    seat = job.seats[0]
    job.saving = Saving(
        record.id, record.step, record.generation, seat.node, seat.member, record.kind, record.base,
        record.versions, Stage.PUBLISH, record,
    )  # fmt: skip
