"""Act on numbers that a script found wrong: by policy nothing, the end, or back to an older state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import finalizing
from controlplane.core.failures import numeric_anomalies
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


STEP_MAX = 1 << 53
"""No script gets so far. Beyond it floats skip numbers, and what follows from it no message could hold."""


_RUNS = (JobPhase.RUNNING, JobPhase.FORMING)


def faulted(m: ClusterState, event: ev.UserFault) -> None:
    """A script found its numbers wrong: by policy nothing, the end, or back to a state older than that."""
    job = m.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None or job.generation is None:
        m.drop(NoteKind.STALE_FAULT, event.member, f"job {event.job} does not run here")
        return
    if event.step >= STEP_MAX:
        m.drop(NoteKind.STRAY_FAULT, event.member, f"step {event.step} is beyond all steps")
        return
    if event.generation != job.generation.number or job.phase not in _RUNS:
        m.drop(NoteKind.STALE_FAULT, event.member, f"generation {event.generation} is over already")
        return
    if _policy(job, event) == "ignore":
        m.note(NoteKind.FAULT_IGNORED, job.name, f"step {event.step}: {event.reason} (--on-nan ignore)")
        return
    first = all(fault.generation != event.generation for fault in job.numbers.faults)
    policy = _policy(job, event)
    distrust(m, job, Fault(max(event.step, 1), event.generation, policy == "stop"), event.reason)
    if not first:
        return
    job.numbers.on_fault = policy
    member = job.members.get(event.member)
    where = f"rank {member.rank} ({member.name} on {member.node})" if member else event.member
    failure = Failure(Cause.FAULT, f"{where}, step {event.step}: {event.reason}", step=event.step)
    job.recovery.unjudged.append(Evidence(m.now, failure))
    m.store(f"job/{job.name}", fx.StoreJob(job.name, job.state()))
    m.touch(job)


def owed(m: ClusterState, job: Job, generation: Generation) -> bool:
    """Whether this generation trains although its numbers were found wrong: a leader that heard of it was
    gone before it could stop the ranks. They are stopped now."""
    found = [fault for fault in job.numbers.faults if fault.generation == generation.number]
    if not found:
        return False
    step = min(fault.step for fault in found)
    words = f"step {step} of generation {generation.number} was at fault, as a former leader was told"
    failure = Failure(Cause.FAULT, words, step=step)
    job.recovery.failures_seen[repeat_key(failure)] = sum(
        f.step == step and f not in found for f in job.numbers.faults
    )
    job.numbers.on_fault = "stop" if any(fault.stop for fault in found) else "rollback"
    job.recovery.unjudged.append(Evidence(m.now, failure))
    m.touch(job)
    return True


def _policy(job: Job, event: ev.UserFault) -> str:
    if event.kind == "nan":
        return job.spec.on_nan
    return "rollback" if event.rollback else "stop"


def distrust(m: ClusterState, job: Job, fault: Fault, reason: str) -> None:
    """States from that step on, of this generation and those before it, are never used again."""
    job.numbers.faults = (*job.numbers.faults[1 - FAULTS_KEPT :], fault)
    words = f"not to be used: step {fault.step} of generation {fault.generation} was at fault: {reason}"
    for record in list(job.checkpoints.records.values()):
        if not record.bad and numeric_anomalies.concerns(fault, record.step, record.generation):
            finalizing.mark_bad(m, job, record.id, words)
    for saving in list(job.checkpoints.savings.values()):
        if numeric_anomalies.concerns(fault, saving.step, saving.generation):
            finalizing.failed(m, job, saving, words)
