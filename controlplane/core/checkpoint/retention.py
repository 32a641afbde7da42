"""Choose the checkpoints that are kept, and collect the others.

An old checkpoint is marked bad (RETIRED) in etcd first, so that no leader restores from it. Then an agent
deletes it from the storage, and then etcd forgets it. When a leader dies in between, the next one sees the
mark and goes on. One collection runs at a time, and only while nothing is read from checkpoints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing, sharing
from controlplane.core.failures import suspect_states
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.job import ENDED
from controlplane.core.state.saving import Collecting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

QUIET = (JobPhase.RUNNING, *ENDED)
"""Phases in which nothing is read from a checkpoint, so that old ones may be deleted."""


def removable(
    records: Iterable[CheckpointRecord], keep_last: int, keep_every: int, bases: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the ids that retention does not keep, oldest first.

    Kept are: the newest `keep_last` good ones (0: all); the newest good one that is not suspect; the first
    at or after each multiple of `keep_every` steps (0: none); all that are newer than the newest good one;
    all that are not published yet; the base of every kept one; and `bases`."""
    ordered = sorted(records, key=lambda r: (r.step, r.generation))
    good = [r for r in ordered if r.published and not r.bad]
    if keep_last <= 0 or not good:
        return ()
    newest = good[-1]
    kept = {r.id: r for r in (*good[-keep_last:], *[r for r in good if not r.suspect][-1:])}
    kept |= {r.id: r for r in _milestones(good, keep_every)}
    kept |= {r.id: r for r in ordered if (r.step, r.generation) > (newest.step, newest.generation)}
    kept |= {r.id: r for r in ordered if not r.published and not r.bad}
    needed = {r.base for r in kept.values()} | set(bases)
    return tuple(r.id for r in ordered if r.id not in kept and r.id not in needed)


def _milestones(good: list[CheckpointRecord], every: int) -> list[CheckpointRecord]:
    """Return the first checkpoint at or after each multiple of `every` steps. `good`: ascending by step."""
    first: dict[int, CheckpointRecord] = {}
    for record in good if every > 0 else ():
        if record.step >= every:
            first.setdefault(record.step // every, record)
    return list(first.values())


def base_beside(job: Job) -> str:
    """Return the base to which a checkpoint may be added while old ones are deleted: that of the newest good
    full one; "" when there is none."""
    good = commit.newest_good(job.checkpoints.records.values(), commit.FULL)
    rotten = commit.rotten_bases(job.checkpoints.records.values())
    return good.id if good is not None and good.id not in rotten else ""


def _busy(job: Job) -> tuple[str, ...]:
    """Return the bases that are written to now, or may be at any moment."""
    bases = [saving.base for saving in job.checkpoints.savings.values()]
    return tuple(dict.fromkeys([*bases, *([base] if (base := base_beside(job)) else [])]))


def reconcile(state: ClusterState, job: Job) -> None:
    """Begin a collection when there is something to delete, or drive the one that is under way."""
    if job.checkpoints.collecting is not None:
        _drive(state, job, job.checkpoints.collecting)
        return
    if (
        not job.spec.storage
        or job.checkpoints.full_owed
        or job.phase not in QUIET
        or job.recovery.incident is not None
    ):
        return
    ids = _unwanted(job)
    if not ids:
        return
    if state.now < job.checkpoints.collect_again_at and all(
        name in job.checkpoints.uncollected for name in ids
    ):
        state.wake(job, job.checkpoints.collect_again_at)
        return
    job.checkpoints.collecting = Collecting(ids)
    _mark(state, job, ids)


def _unwanted(job: Job) -> tuple[str, ...]:
    """Return the ids to delete: those that retention does not keep, and those that a former leader marked."""
    records, spec = suspect_states.judged(job), job.spec
    retired = [record.id for record in records if record.bad == commit.RETIRED]
    return tuple(dict.fromkeys([*removable(records, spec.keep_last, spec.keep_every, _busy(job)), *retired]))


def _mark(state: ClusterState, job: Job, ids: Sequence[str]) -> None:
    """Mark these checkpoints bad in etcd; the collection goes on when etcd holds all of the marks.

    Marks that were made before may still wait in the write queue. Then one record is written once more: when
    etcd holds it, it holds all that was queued before it."""
    unmarked = [name for name in ids if not job.checkpoints.records[name].bad]
    to_mark = unmarked or (ids[-1:] if state.in_flight(finalizing.queue(job)) else ())
    if not to_mark:
        _marked(state, job.name)
    for name in to_mark:
        record = job.checkpoints.records[name]
        if name in unmarked:
            record = job.checkpoints.records[name] = commit.as_bad(record, commit.RETIRED)
        finalizing.put(
            state, job, record, (lambda: _marked(state, job.name)) if name == to_mark[-1] else None
        )


def _marked(state: ClusterState, name: str) -> None:
    job = state.jobs.get(name)
    if job is not None and job.checkpoints.collecting is not None:
        node = sharing.chosen_node(state, job, last=True)
        job.checkpoints.collecting = dataclasses.replace(job.checkpoints.collecting, node=node or "?")
        state.touch(job)


def _drive(state: ClusterState, job: Job, collecting: Collecting) -> None:
    if not collecting.node:
        return
    node = state.nodes.get(collecting.node)
    if node is None or node.state == "lost":
        other = sharing.chosen_node(state, job, last=True)
        if not other:
            return
        collecting = job.checkpoints.collecting = dataclasses.replace(collecting, node=other)
    keep = tuple(name for name in job.checkpoints.records if name not in collecting.remove)
    order = fx.Collect(collecting.node, job.spec, collecting.remove, keep, _busy(job))
    state.order(job, ("collect", collecting.node, *collecting.remove), order, state.settings.long_retry_s)


def collected(state: ClusterState, event: ev.Collected) -> None:
    """Take an agent's answer: etcd forgets what was deleted; what was not is tried again later.

    An agent that was still busy with an earlier order for this collection answers for that one: whatever it
    does not name as deleted is collected afterwards."""
    job = state.jobs.get(event.job)
    under_way = job.checkpoints.collecting if job else None
    if job is None or under_way is None or not under_way.node:
        state.drop(NoteKind.STALE_COLLECTED, event.job, "nothing is being collected")
        return
    if any(name not in under_way.remove for name in event.removed):
        state.drop(NoteKind.STALE_COLLECTED, event.job, "it tells of an earlier collection")
        return
    left = tuple(name for name in under_way.remove if name not in event.removed)
    job.checkpoints.collecting = None
    job.checkpoints.uncollected = left if event.reason else ()
    job.checkpoints.collect_again_at = state.now + state.settings.collect_retry_s
    state.touch(job)
    if event.reason:
        state.note(
            NoteKind.COLLECT_FAILED, job.name, f"{len(left)} checkpoints are still on storage: {event.reason}"
        )
    _forget(state, job, event.removed)


def _forget(state: ClusterState, job: Job, gone: Sequence[str]) -> None:
    for name in gone:
        job.checkpoints.records.pop(name, None)
        state.emit(fx.CheckpointChanged(job.name, name, "collected", "retention wants it no more"))
    if gone:
        state.store(finalizing.queue(job), fx.ForgetCheckpoints(job.name, tuple(gone)))
