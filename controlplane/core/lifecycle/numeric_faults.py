"""Act on numeric anomalies that a script reports: ignore them, end the job, or roll back, by its policy.

States at and after the faulty step are distrusted first: no snapshot or checkpoint of them is used again, and
etcd keeps this for the next leader. Several ranks may report the same anomaly: the first report of a
generation becomes evidence of a failure, and the others only extend what is distrusted.

A report may come late: its generation is stopped already, the next one is chosen, on its way into etcd, or
trains. Then nobody is stopped for the report itself. What descends from the states in question is distrusted
with them, and a generation that began with such a state goes back (`owed`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import finalizing
from controlplane.core.failures import numeric_anomalies
from controlplane.core.failures.blame import CORRUPT_STATE
from controlplane.core.failures.verdicts import repeat_key
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Cause, Failure, Fault, JobPhase
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Generation
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


FAULTS_KEPT = 64
"""Numeric anomalies remembered per job, the newest."""


STEP_MAX = 1 << 53
"""Steps from here on are refused: floats skip integers there, and messages could not hold what follows."""


RUNS = (JobPhase.RUNNING, JobPhase.FORMING)
"""Phases in which a report about the numbers of the present generation stops its ranks."""


def faulted(state: ClusterState, event: ev.UserFault) -> None:
    """Take a script's report of a numeric anomaly, and act on it by the job's policy."""
    job = state.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None or job.generation is None:
        state.drop(NoteKind.STALE_FAULT, event.member, f"job {event.job} does not run here")
        return
    if event.step >= STEP_MAX:
        state.drop(NoteKind.STRAY_FAULT, event.member, f"step {event.step} is beyond all steps")
        return
    if event.generation not in job.generations.known:
        state.drop(NoteKind.STALE_FAULT, event.member, f"generation {event.generation} is not known here")
        return
    policy = _policy(job, event)
    if policy == "ignore":
        state.note(NoteKind.FAULT_IGNORED, job.name, f"step {event.step}: {event.reason} (--on-nan ignore)")
        return
    first = all(fault.generation != event.generation for fault in job.numbers.faults)
    fault = Fault(max(event.step, 1), event.generation, policy == "stop")
    news = distrust(state, job, fault, event.reason)
    if event.generation != job.generation.number or job.phase not in RUNS:
        if news:
            state.note(NoteKind.LATE_FAULT, event.member, f"step {event.step}: {event.reason}")
        return
    if not first:
        return
    job.numbers.on_fault = policy
    member = job.members.get(event.member)
    where = f"rank {member.rank} ({member.name} on {member.node})" if member else event.member
    failure = Failure(Cause.FAULT, f"{where}, step {event.step}: {event.reason}", step=event.step)
    job.recovery.unjudged.append(Evidence(state.now, failure))


def owed(state: ClusterState, job: Job, generation: Generation) -> bool:
    """Whether this generation trains, or is about to, although a numeric anomaly speaks against its states;
    if so, that becomes evidence.

    A former leader recorded it in etcd and was gone before it could stop the ranks, or the report came after
    the generation had been chosen. While ranks of this leader's term replay the steps in question, it is not
    owed yet."""
    dispute = job.numbers.dispute
    if dispute is not None and dispute.awaits and dispute.report.generation == generation.number:
        return False
    found = [fault for fault in job.numbers.faults if fault.generation == generation.number]
    if not found:
        return False
    step = min(fault.step for fault in found)
    corrupt = all(fault.corrupt for fault in found)
    words = f"step {step} of generation {generation.number} was at fault, as a former leader was told"
    if numeric_anomalies.began_in(job.numbers.faults, generation):
        what = "replicas differed" if corrupt else "there was a numeric anomaly"
        words = f"{what} in step {step}, from which generation {generation.number} goes on"
    exception = CORRUPT_STATE if corrupt else ""
    words = f"{exception}: {words}" if exception else words
    failure = Failure(Cause.FAULT, words, step=step, exception=exception)
    job.recovery.failures_seen[repeat_key(failure)] = sum(
        f.step == step and f not in found for f in job.numbers.faults
    )
    job.numbers.on_fault = "stop" if any(fault.stop for fault in found) else "rollback"
    job.recovery.unjudged.append(Evidence(state.now, failure))
    state.touch(job)
    return True


def _policy(job: Job, event: ev.UserFault) -> str:
    if event.kind == "nan":
        return job.spec.on_nan
    return "rollback" if event.rollback else "stop"


def distrust(state: ClusterState, job: Job, fault: Fault, reason: str) -> bool:
    """Never use again the states from the fault's step on that its generation, or one before, computed, nor
    what descends from them. Return whether anything of it is news; etcd is told what is."""
    every = (fault, *numeric_anomalies.descended(job, (fault,)))
    news = [each for each in every if each not in job.numbers.faults]
    for each in news:
        _disown(state, job, each, reason)
    if not news:
        return False
    if job.phase is JobPhase.LEAVING:  # the ranks may be gone: nobody can call them back
        words = f"{job.reason}; what was computed at its end is not trusted: {reason}"
        state.set_phase(job, job.phase, words)
    state.store(f"job/{job.name}", fx.StoreJob(job.name, job.kept()))
    job.restore.restoring = None  # what was chosen may be distrusted now
    state.touch(job)
    return True


def _disown(state: ClusterState, job: Job, fault: Fault, reason: str) -> None:
    job.numbers.faults = (*job.numbers.faults[1 - FAULTS_KEPT :], fault)
    words = f"not to be used: step {fault.step} of generation {fault.generation} was at fault: {reason}"
    for record in list(job.checkpoints.records.values()):
        if not record.bad and numeric_anomalies.concerns(fault, record.step, record.generation):
            finalizing.mark_bad(state, job, record.id, words)
    for saving in list(job.checkpoints.savings.values()):
        if numeric_anomalies.concerns(fault, saving.step, saving.generation):
            finalizing.failed(state, job, saving, words)
