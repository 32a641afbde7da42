"""Say which states are not trusted after numeric anomalies, and which data is skipped.

A state is named by step and generation, so that "from this step on, of this generation and all before it"
is all that has to be remembered, in etcd, too."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records.model import Fault, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.core.records.copies import Copy
    from controlplane.core.records.model import Generation, JobState, Resume
    from controlplane.core.state.job import Job


def speaks_against(job: Job, step: int, generation: int) -> bool:
    """Whether some anomaly makes the state that this generation has after `step` steps untrusted."""
    return any(concerns(fault, step, generation) for fault in job.numbers.faults)


def concerns(fault: Fault, step: int, generation: int) -> bool:
    """Whether this anomaly makes the state that `generation` has after `step` steps untrusted."""
    return (
        step >= fault.step
        and generation <= fault.generation
        and (not fault.last_step or step <= fault.last_step)
    )


def descended(
    job: Job, windows: Sequence[Fault], limited: Callable[[Fault, int], Fault] = lambda window, _step: window
) -> tuple[Fault, ...]:
    """The windows of those generations that started from a state in these windows, which is known only now:
    the report may come when the next generation is chosen, on its way into etcd, or trains already.

    `limited` gives the window of a generation that started with so many steps its end."""
    starts, storing = dict(job.generations.lines), job.generations.storing
    if storing is not None:
        starts[storing.number] = storing.resume.step, storing.resume.born
    found: list[Fault] = []
    for number, (step, born) in sorted(starts.items()):
        hits = [
            each for each in (*windows, *found) if concerns(each, step, born) and each.generation < number
        ]
        own = any(each.generation == number and each.step == step for each in windows)
        if hits and not own:
            window = dataclasses.replace(hits[0], step=step, generation=number, last_step=0)
            found.append(limited(window, step))
    return tuple(found)


def began_in(windows: Sequence[Fault], generation: Generation) -> bool:
    """Whether this generation began with a state that an earlier one's window speaks against."""
    resume = generation.resume
    return any(concerns(w, resume.step, resume.born) for w in windows if w.generation < generation.number)


def trusted(job: Job, copies: Sequence[Copy]) -> list[Copy]:
    """The copies that no anomaly makes untrusted.

    A state is proven by a step that ran well on it. So the state with which the faulty step began is not
    trusted either, although it was computed before."""
    return [copy for copy in copies if not speaks_against(job, copy.step, copy.origin)]


def skipping(job: Job, resume: Resume) -> Resume:
    """The restore point with the data that is skipped from now on: what was skipped before and, by policy,
    the last batches up to the anomaly that made this restore necessary."""
    windows = job.numbers.skips
    broken = job.generation_number
    faults = [
        fault
        for fault in job.numbers.faults
        if fault.generation == broken and fault.step > resume.step and not fault.corrupt
    ]
    size = job.spec.nan_skip_window
    if size and faults:
        end = batch(min(fault.step for fault in faults), windows) + 1
        windows = merged(windows, Window(max(batch(resume.step, windows), end - size), end))
    words = f"; data that is left out: batches {_listed(windows)}" if windows != job.numbers.skips else ""
    return dataclasses.replace(resume, skip=windows, reason=resume.reason + words)


def _listed(windows: Sequence[Window]) -> str:
    return ", ".join(f"{w.first} to {w.end - 1}" for w in windows)


def batch(step: int, windows: Sequence[Window]) -> int:
    """Which batch of the endless order a step consumes, when these windows (ascending) are skipped."""
    for window in windows:
        if step >= window.first:
            step += window.end - window.first
    return step


def merged(windows: Sequence[Window], new: Window) -> tuple[Window, ...]:
    """The windows with the new one among them: ascending, and joined where they touch."""
    found: list[Window] = []
    for window in sorted((*windows, new), key=lambda w: (w.first, w.end)):
        if found and window.first <= found[-1].end:
            found[-1] = Window(found[-1].first, max(found[-1].end, window.end))
        else:
            found.append(window)
    return tuple(found)


def recall(job: Job, state: JobState) -> None:
    """Take over what a former leader put into etcd."""
    job.numbers.faults, job.numbers.skips, job.numbers.suspect_states = (
        state.faults,
        state.skips,
        state.suspect_states,
    )
