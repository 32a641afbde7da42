"""Watch that each training job makes snapshots and, with a storage, checkpoints; report and help when not.

A job is driven on by facts as they arrive. If the one fact that it waits for were lost, training would go on
and nothing of it would be kept, unnoticed. So each training job is looked at every few seconds, whatever
arrives, at the cost of reading one rank's status. What has not come for several times as long as it usually
takes is overdue. This is reported, the job is driven on from all that is known, and its ranks are sent again
what they wait for. It is also reported when they come again: if the repair helped, a drive was missed, and
that is a bug of ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import skipping, voiding
from controlplane.core.checkpoint.commit import newest_good
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.pulse import Pulse
from controlplane.core.state.saving import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

TIMES = 3
"""Snapshots or checkpoints are overdue only after so many of them should have come."""

LOOKS = 3.0
"""How often a job is looked at within `overdue_after_s`."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One thing that a training job has to make again and again."""

    name: str  # prefix of the kinds of its notes
    gap_s: float  # assumed time (s) between two of them, until one gap was seen
    owed: Callable[[Job], bool]  # whether this job has to make them
    done: Callable[[Job], int]  # a number that changes with each new one
    due: Callable[[Job, int, float], bool]  # whether TIMES of them should have come after (steps, s)
    held_up: Callable[[Job], str]  # what they rightly wait for now; "": nothing
    state: Callable[[ClusterState, Job], str]  # where they stand, for people


def begin(state: ClusterState) -> None:
    """Set the deadline of the next look; each look sets the next one, for the whole leader term."""
    state.deadlines.sooner(("watch", ""), state.now + state.settings.overdue_after_s / LOOKS)


def due(state: ClusterState) -> None:
    """Look at each job. One that is in time costs a few reads."""
    begin(state)
    for job in state.jobs.values():
        first = _trains(job)
        if first is not None:
            for duty in DUTIES:
                if duty.owed(job):
                    _look(state, job, duty, job.generation_number, first)
        else:
            for name, pulse in job.checkpoints.pulses.items():
                _over(state, job, name, pulse, f"the job is {job.phase}")
                pulse.rest()


def reasons(job: Job) -> tuple[tuple[str, str], ...]:
    """Return what is overdue: (name, reason)."""
    return tuple((name, pulse.overdue) for name, pulse in job.checkpoints.pulses.items() if pulse.overdue)


def _trains(job: Job) -> int | None:
    """Return the step of the job's first rank when all ranks train and have state to keep; None otherwise."""
    generation, rank_sets = job.generation, job.seating.rank_sets
    if job.phase is not JobPhase.RUNNING or generation is None or not generation.store or job.ending:
        return None
    if rank_sets.uncalm or job.recovery.stalled or job.changes.pause or job.recovery.broken_since is not None:
        return None
    status = job.seated()[0].status
    if status is None or status.phase is not MemberPhase.RUNNING or status.state_bytes <= 0:
        return None
    return status.step


def _look(state: ClusterState, job: Job, duty: Duty, generation: int, step: int) -> None:
    pulse = job.checkpoints.pulses.get(duty.name)
    if pulse is None:
        pulse = job.checkpoints.pulses[duty.name] = Pulse(duty.gap_s)
    mark = (generation, duty.done(job))
    if mark != pulse.mark:
        _over(state, job, duty.name, pulse, "they go on")
    if pulse.move(mark, step, state.now):
        return
    if duty.held_up(job):
        pulse.at = state.now
        return
    bound_s = pulse.bound_s(state.settings.overdue_after_s, state.settings.overdue_factor)
    passed, waited_s = step - pulse.step, state.now - pulse.at
    if not pulse.late(state.now, bound_s) or not duty.due(job, passed, waited_s):
        return
    if not pulse.overdue:
        pulse.since = state.now
        state.ask_health()
    pulse.overdue = f"none for {waited_s:.0f} s and {passed} steps; {duty.state(state, job)}"
    if pulse.try_again(state.now, bound_s):
        again = f"the job is looked at again, its ranks are told again (try {pulse.tries})"
        state.counts["overdue"] = state.counts.get("overdue", 0) + 1
        state.note(NoteKind(f"{duty.name}_overdue"), job.name, f"{pulse.overdue}; {again}")
        _repair(state, job, pulse.tries)


def _over(state: ClusterState, job: Job, name: str, pulse: Pulse, why: str) -> None:
    if not pulse.overdue:
        return
    state.ask_health()
    ended = (
        f"{why}; overdue for {state.now - pulse.since:.0f} s, the job was looked at again {pulse.tries} times"
    )
    state.note(NoteKind(f"{name}_overdue_no_more"), job.name, ended)


def _repair(state: ClusterState, job: Job, tries: int) -> None:
    """Drive the job on as if nothing of it had been read, and nothing sent to its nodes.

    From the second try on, unreleased snapshots are given up: perhaps they can never become whole."""
    job.recovery.watched.clear()
    job.reread()
    for node in job.seat_nodes():
        job.sent.forget(node)
    if tries > 1:
        voiding.give_up(state, job)
    voiding.say_again(state, job)
    state.touch(job)


# ------------------------------------------------------------------ what is owed


def _writing(job: Job) -> str:
    """Return the id of a checkpoint whose writers still read the slots that the next snapshots need."""
    return next((each.id for each in job.checkpoints.savings.values() if each.stage is Stage.PERSIST), "")


def _snapshots(state: ClusterState, job: Job) -> str:
    """Describe the newest snapshots: which step all ranks have, and which rank is behind, or lacks memory."""
    newest = (
        f"all ranks have {job.snapshots.released}"
        if job.snapshots.released > NO_STEP
        else "none is on all ranks"
    )
    if why := skipping.no_room(job):
        return f"{newest}; {why}"
    last = min(job.seated(), key=lambda mb: _own(job, mb))
    return f"{newest}, the newest of rank {last.rank} on {last.node} is {_own(job, last)}"


def _own(job: Job, member: Member) -> int:
    return max(job.snapshots.held.get(member.rank, ()), default=NO_STEP)


def _checkpoints(state: ClusterState, job: Job) -> str:
    good = newest_good(job.checkpoints.records.values())
    newest = f"the newest is {good.id}" if good else "there is none"
    flying = [f"{each.id} is in flight ({each.stage})" for each in job.checkpoints.savings.values()]
    return "; ".join((newest, *(flying or ["none is in flight"])))


def _checkpoints_due(job: Job, steps: int, waited_s: float) -> bool:
    spec, choice = job.spec, job.checkpoints.choice
    if spec.checkpoint_auto:
        return waited_s > TIMES * (choice.interval_s if choice is not None else math.inf)
    timed = 0 < TIMES * spec.checkpoint_every_s < waited_s
    return timed or steps >= TIMES * spec.checkpoint_every


DUTIES = (
    Duty(
        name="snapshots",
        gap_s=10.0,
        owed=lambda job: True,
        done=lambda job: job.snapshots.released,
        due=lambda job, steps, waited_s: steps >= TIMES * job.spec.snapshot_every,
        held_up=_writing,
        state=_snapshots,
    ),
    Duty(
        name="checkpoints",
        gap_s=60.0,  # an upload may take long, and nothing is known of the storage yet
        owed=lambda job: bool(job.spec.storage),
        done=lambda job: job.checkpoints.commits,
        due=_checkpoints_due,
        held_up=lambda job: "",
        state=_checkpoints,
    ),
)
