"""Numbers gone wrong: which states are not trusted any more, which data is left out, and what is done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import finalizing
from controlplane.core.failures.verdicts import repeat_key
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Cause, Failure, Fault, JobPhase, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.copies import Copy
    from controlplane.core.records.model import Generation, JobState, Resume
    from controlplane.core.state.job import Job
    from controlplane.core.state.machine import Machine

FAULTS_KEPT = 64
STEP_MAX = 1 << 53
"""No script gets so far. Beyond it floats skip numbers, and what follows from it no message could hold."""

_RUNS = (JobPhase.RUNNING, JobPhase.FORMING)


def faulted(m: Machine, event: ev.UserFault) -> None:
    """A script found its numbers wrong: by policy nothing, the end, or back to a state older than that."""
    job = m.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None or job.generation is None:
        m.drop("stale_fault", event.member, f"job {event.job} does not run here")
        return
    if event.step >= STEP_MAX:
        m.drop("stray_fault", event.member, f"step {event.step} is beyond all steps")
        return
    if event.generation != job.generation.number or job.phase not in _RUNS:
        m.drop("stale_fault", event.member, f"generation {event.generation} is over already")
        return
    if _policy(job, event) == "ignore":
        m.note("fault_ignored", job.name, f"step {event.step}: {event.reason} (--on-nan ignore)")
        return
    first = all(fault.generation != event.generation for fault in job.faults)
    policy = _policy(job, event)
    distrust(m, job, Fault(max(event.step, 1), event.generation, policy == "stop"), event.reason)
    if not first:
        return
    job.on_fault = policy
    member = job.members.get(event.member)
    where = f"rank {member.rank} ({member.name} on {member.node})" if member else event.member
    failure = Failure(Cause.FAULT, f"{where}, step {event.step}: {event.reason}", step=event.step)
    job.fresh.append(Evidence(m.now, failure))
    m.store(f"job/{job.name}", fx.Store(0, 0, job=job.name, state=job.state()))
    m.touch(job)


def owed(m: Machine, job: Job, generation: Generation) -> bool:
    """Whether this generation trains although its numbers were found wrong: a leader that heard of it was
    gone before it could stop the ranks. They are stopped now."""
    found = [fault for fault in job.faults if fault.generation == generation.number]
    if not found:
        return False
    step = min(fault.step for fault in found)
    words = f"step {step} of generation {generation.number} was at fault, as a former leader was told"
    failure = Failure(Cause.FAULT, words, step=step)
    job.failures_seen[repeat_key(failure)] = sum(f.step == step and f not in found for f in job.faults)
    job.on_fault = "stop" if any(fault.stop for fault in found) else "rollback"
    job.fresh.append(Evidence(m.now, failure))
    m.touch(job)
    return True


def speaks_against(job: Job, step: int, generation: int) -> bool:
    """Whether some fault speaks against the state that this generation has after so many steps."""
    return any(_hit(fault, step, generation) for fault in job.faults)


def _policy(job: Job, event: ev.UserFault) -> str:
    if event.kind == "nan":
        return job.spec.on_nan
    return "rollback" if event.rollback else "stop"


def distrust(m: Machine, job: Job, fault: Fault, reason: str) -> None:
    """States from that step on, of this generation and those before it, are never used again."""
    job.faults = (*job.faults[1 - FAULTS_KEPT :], fault)
    words = f"not to be used: step {fault.step} of generation {fault.generation} was at fault: {reason}"
    for record in list(job.checkpoints.values()):
        if not record.bad and _hit(fault, record.step, record.generation):
            finalizing.mark_bad(m, job, record.id, words)
    for saving in list(job.savings.values()):
        if _hit(fault, saving.step, saving.generation):
            finalizing.failed(m, job, saving, words)


def _hit(fault: Fault, step: int, generation: int) -> bool:
    return step >= fault.step and generation <= fault.generation


def trusted(job: Job, copies: Sequence[Copy]) -> list[Copy]:
    """The copies that no fault speaks against. A state is proved by the step that ran well on it, so that of
    the faulty step itself is not."""
    return [copy for copy in copies if not speaks_against(job, copy.step, copy.born)]


def skipping(job: Job, resume: Resume) -> Resume:
    """The resume with the data that is left out from now on: what was so before, and by policy the batches
    that led to the fault which this resume goes back behind."""
    windows = job.skips
    broken = job.generation.number if job.generation else 0
    faults = [fault for fault in job.faults if fault.generation == broken and fault.step > resume.step]
    size = job.spec.nan_skip_window
    if size and faults:
        end = batch(min(fault.step for fault in faults), windows) + 1
        windows = merged(windows, Window(max(batch(resume.step, windows), end - size), end))
    words = f"; data that is left out: batches {_told(windows)}" if windows != job.skips else ""
    return dataclasses.replace(resume, skip=windows, reason=resume.reason + words)


def _told(windows: Sequence[Window]) -> str:
    return ", ".join(f"{w.first} to {w.end - 1}" for w in windows)


def batch(step: int, windows: Sequence[Window]) -> int:
    """Which batch of the endless order a step consumes, when these windows (ascending) are left out."""
    for window in windows:
        if step >= window.first:
            step += window.end - window.first
    return step


def merged(windows: Sequence[Window], new: Window) -> tuple[Window, ...]:
    """Ascending windows that do not touch each other, the new one among them."""
    found: list[Window] = []
    for window in sorted((*windows, new), key=lambda w: (w.first, w.end)):
        if found and window.first <= found[-1].end:
            found[-1] = Window(found[-1].first, max(found[-1].end, window.end))
        else:
            found.append(window)
    return tuple(found)


def recall(job: Job, state: JobState) -> None:
    """Take up what a former leader had put into etcd."""
    job.faults, job.skips = state.faults, state.skips
