"""Say in which states replicas differed, where that is only reported (`--on-corrupt-state report`). Pure.

A window is a `Fault` with an end. It begins after the last comparison in which all agreed, and ends before
the next in which all agree. Until then it has no end: whatever is computed meanwhile is suspect. A generation
that starts from a suspect state begins with a window of its own, so that what ends one generation's window
says nothing about states of the generations before it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import numeric_anomalies
from controlplane.core.records.model import Fault

if TYPE_CHECKING:
    from controlplane.core.records.evidence import ReplicasReported
    from controlplane.core.records.model import CheckpointRecord, Resume
    from controlplane.core.state.job import Job

    Windows = tuple[Fault, ...]

KEPT = 64
"""Windows remembered per job, the newest. Checkpoints keep their own mark."""


def suspected(job: Job, step: int, generation: int) -> str:
    """Why the state that `generation` has after `step` steps is suspect; "" when it is not."""
    for window in job.numbers.suspect_states:
        if numeric_anomalies.concerns(window, step, generation):
            return (
                f"replicas of the state differed: all held the same for the last time with {window.step - 1} "
                "steps completed, and --on-corrupt-state report lets the job train on"
            )
    return ""


def judge(job: Job, record: CheckpointRecord) -> CheckpointRecord:
    """Return the record with the mark that its state calls for. A mark that is there stays."""
    why = record.suspect or suspected(job, record.step, record.generation)
    return dataclasses.replace(record, suspect=why) if why != record.suspect else record


def judged(job: Job) -> list[CheckpointRecord]:
    """Return the records of all checkpoints, with the marks that etcd may not hold yet."""
    return [judge(job, record) for record in job.checkpoints.records.values()]


def differed(job: Job, event: ReplicasReported) -> Windows:
    """Return the windows after a report that replicas differ. It may come late, out of order, or again."""
    windows, generation = job.numbers.suspect_states, event.generation
    started = job.generations.lines.get(generation)
    if started is not None and event.agreed_step > started[0]:  # not only because all were given the same
        windows = agreed(windows, generation, event.agreed_step)
    if any(_covers(window, event) for window in windows):
        return windows
    window = _until_agreed(job, Fault(event.agreed_step + 1, generation, corrupt=True), event.step)
    windows = (*windows, window)
    further = numeric_anomalies.descended(job, windows, lambda own, start: _until_agreed(job, own, start))
    return (*windows, *further)[-KEPT:]


def _until_agreed(job: Job, window: Fault, step: int) -> Fault:
    """The window, with its end if the replicas of this generation are known to have agreed after `step`."""
    newest = job.numbers.agreed
    over = newest is not None and newest.generation == window.generation and newest.step > step
    return dataclasses.replace(window, last_step=newest.step - 1) if newest is not None and over else window


def _covers(window: Fault, event: ReplicasReported) -> bool:
    if window.generation != event.generation or window.step > event.agreed_step + 1:
        return False
    return not window.last_step or window.last_step >= event.step


def agreed(windows: Windows, generation: int, step: int) -> Windows:
    """Return the windows after all replicas agreed in this generation with `step` steps completed."""
    found = []
    for window in windows:
        ends = window.generation == generation and not window.last_step and window.step <= step
        if not ends:
            found.append(window)
        elif window.step < step:
            found.append(dataclasses.replace(window, last_step=step - 1))
    return tuple(found)


def settles(job: Job, event: ReplicasReported) -> bool:
    """Whether the comparison in which all agreed was one of all that is known to have differed.

    What only one rank holds agrees with nothing. `uncovered` names whole objects, or a part of one."""
    if not event.uncovered:
        return True
    dispute = job.numbers.dispute
    if dispute is None or dispute.report.more or not dispute.report.tensors:
        return False
    alone = {words.rpartition(" of ")[2] for words in event.uncovered}
    return not any(_within(tensor, name) for tensor in dispute.report.tensors for name in alone)


def _within(tensor: str, name: str) -> bool:
    return tensor == name or tensor.startswith((f"{name}.", f"{name}["))


def inherited(job: Job, resume: Resume, number: int) -> Windows:
    """Return the windows once generation `number` starts from this restore point."""
    windows, own = job.numbers.suspect_states, Fault(resume.step, number, corrupt=True)
    if own in windows or not suspected(job, resume.step, resume.born):
        return windows
    return (*windows[1 - KEPT :], own)
