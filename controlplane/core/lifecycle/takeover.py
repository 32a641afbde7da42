"""Take over as the new leader: build the cluster state from what etcd holds.

Nothing is stopped or started by it. Ranks train on, and jobs are taken to run as etcd says until their nodes
report; every node named there has its timeout to do so. What etcd does not hold (an open incident's evidence,
checkpoints that were not committed, snapshots) is learned from reports, or done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import overdue, saving
from controlplane.core.checkpoint.commit import newest_good
from controlplane.core.failures import marks, numeric_anomalies, quarantine
from controlplane.core.lifecycle import submission
from controlplane.core.membership import nodes, replacement
from controlplane.core.records.model import JobPhase, Role
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.job import ENDED, Job
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Generation, JobState
    from controlplane.core.state.cluster_state import ClusterState


def elected(state: ClusterState, event: ev.Elected) -> None:
    """Lead from now on with these records. Living generations are adopted, so that training goes on.

    Raises AssertionError when this cluster state has led another term: each term begins with a fresh one."""
    if event.term <= state.term:
        state.drop(NoteKind.STALE_ELECTION, str(event.term), f"term {state.term} is here already")
        return
    if state.term:
        raise AssertionError(
            f"term {state.term} was led from this cluster state: a new leader term takes a new Cluster"
        )
    state.term = event.term
    state.wall_s = event.wall_s - state.now if event.wall_s else 0.0
    for spec in event.specs:
        state.jobs[spec.job] = Job(spec, reason="read from etcd", hosts=state.hosts)
    for stored in event.states:
        if stored.job in state.jobs:
            _state(state.jobs[stored.job], stored)
    for record in event.checkpoints:
        job = state.jobs.get(record.job)
        held = state.unclaimed.setdefault(record.job, {}) if job is None else job.checkpoints.records
        held[record.id] = record
    again = [s.job for s in event.states if s.phase is JobPhase.PENDING and s.job in state.jobs]
    for generation in sorted(event.generations, key=lambda g: g.number):
        if generation.job in state.jobs:
            _generation(state, state.jobs[generation.job], generation, generation.job in again)
    nodes.expect_all(state, event)
    for name in again:
        submission.recall(state, state.jobs[name])
    state.unread = event.unread
    for row in event.unread:
        state.note(NoteKind.UNREADABLE, row.key, row.reason)
    marks.take(state, event.marks)
    quarantine.adopt(state, event.lemons)
    state.ask_health()
    replacement.recall(state, event.places)
    replacement.begin(state)
    overdue.begin(state)
    for job in state.jobs.values():
        _checkpoints(job)
        saving.adopt(state, job)
        job.changes.swap_at = state.now + state.settings.swap_every_s  # one may have just been made
        state.touch(job)
    state.note(
        NoteKind.ELECTED,
        str(event.term),
        f"{len(state.jobs)} jobs and {len(state.nodes)} nodes read from etcd",
    )


def _state(job: Job, stored: JobState) -> None:
    job.recovery.incidents, job.recovery.failures_seen = stored.incidents, dict(stored.failures_seen)
    job.recovery.planned, job.recovery.over = (
        stored.planned,
        stored.reason if stored.phase is JobPhase.RUNNING else "",
    )
    if stored.phase is JobPhase.FORMING:
        job.recovery.unfinished = stored.incidents
    numeric_anomalies.recall(job, stored)
    job.changes.pause = stored.pause
    job.generations.replica_shard_ids = job.generations.replica_shard_ids_stored = stored.cut_words
    if stored.phase in (*ENDED, JobPhase.PAUSED, JobPhase.LEAVING):
        job.phase, job.reason = stored.phase, stored.reason


def _generation(state: ClusterState, job: Job, generation: Generation, former: bool) -> None:
    """Take a generation of a job; the newest one comes last. `former`: the job is to be launched again, so
    that its ranks are not adopted."""
    job.turn(generation)
    job.generations.number = max(job.generations.number, generation.number)
    job.generations.known[generation.number] = None
    job.generations.sharding_epoch = generation.cut_at
    if generation.cut_at:  # its state is in shards, whatever ranks report that have built nothing yet
        job.restore.shards = {seat.rank: f"?{seat.rank}" for seat in generation.seats}
    if generation.store:
        job.generations.lines[generation.number] = (generation.resume.step, generation.resume.born)
        job.generations.formed = generation.number
        job.restore.known_step = max(job.restore.known_step, generation.resume.step)
    if not former:
        _adopt(state, job, generation)


def _adopt(state: ClusterState, job: Job, generation: Generation) -> None:
    """Take the generation's ranks as living and training until their nodes report otherwise."""
    job.elastic = job.barrier = bool(generation.store)
    if job.ended:
        return
    paused, leaving = job.phase is JobPhase.PAUSED, job.phase is JobPhase.LEAVING and generation.store
    if not leaving:
        job.phase = JobPhase.RUNNING if generation.store else JobPhase.LAUNCHING
        job.reason = "adopted from etcd: " + (job.recovery.over or generation.reason)
    if paused and generation.store:  # no rank is known to be at the barrier before it was reported
        job.phase, job.reason = JobPhase.STOPPING, f"paused: {job.changes.pause}"
        job.recovery.stop_by = state.now + state.settings.stop_timeout_s
    job.generations.launched_at = state.now
    for seat in generation.seats:
        job.add(Member(seat.member, job.name, seat.node, Role.RANK, seat.rank))
        nodes.expect(state, seat.node)
    job.sit(generation.seats)


def _checkpoints(job: Job) -> None:
    good = newest_good(job.checkpoints.records.values())
    if good is not None:
        job.checkpoints.begun = good.step
        job.restore.known_step = max(job.restore.known_step, good.step)
