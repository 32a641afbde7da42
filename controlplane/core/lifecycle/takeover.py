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


def elected(m: ClusterState, event: ev.Elected) -> None:
    """Lead from now on with these records. Living generations are adopted, so that training goes on.

    Raises AssertionError when this cluster state has led another term: each term begins with a fresh one."""
    if event.term <= m.term:
        m.drop(NoteKind.STALE_ELECTION, str(event.term), f"term {m.term} is here already")
        return
    if m.term:
        raise AssertionError(f"term {m.term} was led from this book: a new reign takes a new Cluster")
    m.term = event.term
    m.wall_s = event.wall_s - m.now if event.wall_s else 0.0
    for spec in event.specs:
        m.jobs[spec.job] = Job(spec, reason="read from etcd")
    for state in event.states:
        if state.job in m.jobs:
            _state(m.jobs[state.job], state)
    for record in event.checkpoints:
        job = m.jobs.get(record.job)
        held = m.unclaimed.setdefault(record.job, {}) if job is None else job.checkpoints.records
        held[record.id] = record
    again = [s.job for s in event.states if s.phase is JobPhase.PENDING and s.job in m.jobs]
    for generation in sorted(event.generations, key=lambda g: g.number):
        if generation.job in m.jobs:
            _generation(m, m.jobs[generation.job], generation, generation.job in again)
    for name in sorted(event.nodes):
        nodes.expect(m, name)
    for name in again:
        submission.recall(m, m.jobs[name])
    m.unread = event.unread
    for row in event.unread:
        m.note(NoteKind.UNREADABLE, row.key, row.reason)
    marks.take(m, event.marks)
    quarantine.adopt(m, event.lemons)
    m.ask_health()
    replacement.recall(m, event.places)
    replacement.begin(m)
    overdue.begin(m)
    for job in m.jobs.values():
        _checkpoints(job)
        saving.adopt(m, job)
        m.touch(job)
    m.note(NoteKind.ELECTED, str(event.term), f"{len(m.jobs)} jobs and {len(m.nodes)} nodes read from etcd")


def _state(job: Job, state: JobState) -> None:
    job.recovery.incidents, job.recovery.failures_seen = state.incidents, dict(state.failures_seen)
    job.recovery.planned, job.recovery.over = (
        state.planned,
        state.reason if state.phase is JobPhase.RUNNING else "",
    )
    if state.phase is JobPhase.FORMING:
        job.recovery.unfinished = state.incidents
    numeric_anomalies.recall(job, state)
    job.places.pause = state.pause
    job.generations.cut_words = job.generations.cut_words_told = state.cut_words
    if state.phase in (*ENDED, JobPhase.PAUSED, JobPhase.LEAVING):
        job.phase, job.reason = state.phase, state.reason


def _generation(m: ClusterState, job: Job, generation: Generation, former: bool) -> None:
    """Take a generation of a job; the newest one comes last. `former`: the job is to be launched again, so
    that its ranks are not adopted."""
    job.turn(generation)
    job.generations.number = max(job.generations.number, generation.number)
    job.generations.known[generation.number] = None
    job.generations.cut_at = generation.cut_at
    if generation.cut_at:  # its state is in shards, whatever ranks report that have built nothing yet
        job.restore.shards = {seat.rank: f"?{seat.rank}" for seat in generation.seats}
    if generation.store:
        job.generations.lines[generation.number] = (generation.resume.step, generation.resume.born)
        job.generations.formed = generation.number
        job.restore.known_step = max(job.restore.known_step, generation.resume.step)
    if not former:
        _adopt(m, job, generation)


def _adopt(m: ClusterState, job: Job, generation: Generation) -> None:
    """Take the generation's ranks as living and training until their nodes report otherwise."""
    job.elastic = job.barrier = bool(generation.store)
    if job.ended:
        return
    paused, leaving = job.phase is JobPhase.PAUSED, job.phase is JobPhase.LEAVING and generation.store
    if not leaving:
        job.phase = JobPhase.RUNNING if generation.store else JobPhase.LAUNCHING
        job.reason = "adopted from etcd: " + (job.recovery.over or generation.reason)
    if paused and generation.store:  # no rank is known to be at the barrier before it was reported
        job.phase, job.reason = JobPhase.STOPPING, f"paused: {job.places.pause}"
        job.recovery.stop_by = m.now + m.settings.stop_timeout_s
    job.generations.launched_at = m.now
    for seat in generation.seats:
        job.add(Member(seat.member, job.name, seat.node, Role.RANK, seat.rank))
        nodes.expect(m, seat.node)
    job.sit(generation.seats)


def _checkpoints(job: Job) -> None:
    good = newest_good(job.checkpoints.records.values())
    if good is not None:
        job.checkpoints.begun = good.step
        job.restore.known_step = max(job.restore.known_step, good.step)
