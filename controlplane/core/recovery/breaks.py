"""After a break that may be a mismatch, have the ranks' flight records judged, and report who is to blame.

Over gloo a rank that calls a collective with another size, or another collective, ends the process that
receives what does not fit: torch calls abort() there. So the rank that died is not the one that is wrong. The
others keep what they called in the generation that broke. Their records are collected while the recovery
goes on, and never change who is replaced: the verdict becomes evidence of the open incident, and a finding of
the job."""

from __future__ import annotations

import dataclasses
import signal
from typing import TYPE_CHECKING

from controlplane.core.failures import hangs
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause
from controlplane.core.records.notes import NoteKind
from controlplane.core.recovery import incident_record, slow_barriers
from controlplane.core.state.inquiries import BreakInquiry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.evidence import Evidence
    from controlplane.core.records.model import Verdict
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def ask(state: ClusterState, job: Job, fresh: Sequence[Evidence]) -> None:
    """If this evidence may be of a mismatch, order the flight records of the generation, once."""
    generation, incident = job.generation, job.recovery.incident
    if generation is None or incident is None or len(generation.seats) < 2:
        return
    known = job.recovery.broke
    if known is not None and known.generation == generation.number:
        return
    if not any(_may_be_mismatch(each) for each in fresh):
        return
    job.recovery.hang_rounds += 1
    until = state.now + state.settings.stacks_timeout_s
    broke = BreakInquiry(incident.id, generation.number, job.recovery.hang_rounds, until)
    job.recovery.broke = broke
    nodes = job.seat_nodes()
    for node in nodes:
        if state.up(node):
            bytes_max = hangs.room(len(nodes))
            order = fx.CollectStacks(node, job.name, generation.number, broke.round, bytes_max)
            state.emit(dataclasses.replace(order, records_only=True))


def _may_be_mismatch(evidence: Evidence) -> bool:
    """Whether a process ended by abort(): so gloo and NCCL end one that receives what does not fit."""
    failure = evidence.failure
    return failure.cause is Cause.SIGNALED and failure.signal == signal.SIGABRT


def collected(state: ClusterState, event: ev.StacksCollected) -> None:
    """Take the records of one node, or the stack reports, if a late barrier or a hang is inquired into."""
    job = state.jobs.get(event.job)
    broke = job.recovery.broke if job is not None else None
    if slow_barriers.collected(state, event):
        return
    if job is None or broke is None or broke.round != event.round:
        hangs.collected(state, event)
        return
    broke.answers[event.node] = event.ranks
    state.touch(job)


def reconcile(state: ClusterState, job: Job) -> None:
    """Give the records away to be judged once all nodes have answered, or had the time to."""
    broke = job.recovery.broke
    if broke is None or broke.asked:
        return
    silent = [node for node in job.seat_nodes() if node not in broke.answers and state.up(node)]
    if silent and state.now < broke.until:
        state.wake(job, broke.until)
        return
    broke.asked = True
    ranks = tuple(s for each in broke.answers.values() for s in each)
    broke.judged = not any(s.flight_record for s in ranks)
    if not broke.judged:
        state.emit(fx.JudgeRecords(job.name, broke.generation, broke.round, ranks, broke=True))


def judged(state: ClusterState, event: ev.RecordsJudged) -> None:
    """Take what the flight records say of a hang or a break. Of a break, add it to the incident."""
    job = state.jobs.get(event.job)
    if job is None:
        return
    look, broke = job.recovery.hang, job.recovery.broke
    if look is not None and look.round == event.round:
        look.records = event
        state.touch(job)
    elif broke is not None and broke.round == event.round:
        _report(state, job, broke, event)


def _report(state: ClusterState, job: Job, broke: BreakInquiry, event: ev.RecordsJudged) -> None:
    if broke.judged:
        return
    broke.judged, broke.blamed = True, event.blamed
    for each in event.blamed:
        words = f"rank {each.rank} ({each.kind}, {each.confidence:.2f}): {each.reason}"
        state.note(NoteKind.RECORDS_JUDGED, job.name, f"the flight records blame {words}")
    incident = job.recovery.incident
    if broke.blamed and incident is not None and incident.id == broke.incident:
        job.recovery.incident = dataclasses.replace(incident, verdict=with_records(job, incident.verdict))
        incident_record.report(state, job, dict(incident.phases_s))


def with_records(job: Job, verdict: Verdict) -> Verdict:
    """A verdict about the open incident, with what the flight records say of the break that it began with."""
    broke, incident = job.recovery.broke, job.recovery.incident
    if broke is None or incident is None or broke.incident != incident.id:
        return verdict
    said = (f"flight records: rank {each.rank} ({each.kind}): {each.reason}" for each in broke.blamed)
    return dataclasses.replace(verdict, evidence=(*verdict.evidence, *said))
