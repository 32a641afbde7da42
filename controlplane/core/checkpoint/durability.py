"""Follow whether what a job trains is kept: failed checkpoints, ranks without memory, the second storage.

`finalizing` and `saving` report what became of each checkpoint; `core.health` asks for the findings in words.
A checkpoint that failed because a rank or node was lost belongs to the incident, and is not counted here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, overdue, skipping
from controlplane.core.records.model import NO_STEP, JobPhase

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.durability_memory import Streak
    from controlplane.core.state.job import Job

ALERT_AFTER = 3
"""Failures in a row after which administrators are alerted; fewer are only shown."""

IDLE = (JobPhase.PENDING, JobPhase.LAUNCHING, JobPhase.PARKED, JobPhase.PAUSED)
"""Phases in which the job makes nothing new that would have to be kept."""

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class DurabilityProblem:
    """One thing that is wrong with how a job's state is kept. `loud`: administrators are alerted."""

    kind: str
    reason: str
    loud: bool = True


def failed(state: ClusterState, job: Job, reason: str) -> None:
    """Count a checkpoint that was not committed, unless an incident is open."""
    if job.recovery.incident is None:
        job.checkpoints.keeping.checkpoints.failed(state.now, reason)
        state.ask_health()


def committed(state: ClusterState, job: Job) -> None:
    """Note that a checkpoint was committed and its manifest is visible: the streak of failures is over."""
    if job.checkpoints.keeping.checkpoints.times:
        state.ask_health()
    job.checkpoints.keeping.checkpoints.over()
    job.checkpoints.keeping.durable_from = state.now


def copied(state: ClusterState, job: Job, reason: str) -> None:
    """Note whether a committed checkpoint reached the second storage. `reason`: why not; "": it did."""
    copies = job.checkpoints.keeping.copies
    if reason or copies.times:
        state.ask_health()
    if reason:
        copies.failed(state.now, reason)
    else:
        copies.over()


def look(state: ClusterState, job: Job) -> None:
    """Record since when the job trains without a durable checkpoint, and whether its ranks have memory."""
    keeping = job.checkpoints.keeping
    if job.phase in IDLE:
        keeping.idle = True
    elif keeping.idle:
        keeping.idle, keeping.durable_from = False, state.now
    _look_for_room(state, job)


def _look_for_room(state: ClusterState, job: Job) -> None:
    roomless, reason = job.checkpoints.keeping.roomless, skipping.no_room(job) if job.seats else ""
    if bool(reason) != bool(roomless.times):
        state.ask_health()
    if reason:
        roomless.failed(state.now, reason)
    else:
        roomless.over()


# ------------------------------------------------------------------ in words


def troubles(state: ClusterState, job: Job) -> tuple[DurabilityProblem, ...]:
    """Return everything that is wrong with how this job's state is kept, the most important first.

    What is overdue is left out where a more exact finding about the same thing is there."""
    loud = job.checkpoints.keeping.checkpoints.times >= ALERT_AFTER
    found = (
        DurabilityProblem("checkpoints_failing", failing(state, job), loud),
        DurabilityProblem("checkpoint_late", late(state, job)),
        DurabilityProblem("snapshots_failing", roomless(state, job)),
        DurabilityProblem(
            "mirror_failing", uncopied(state, job), job.checkpoints.keeping.copies.times >= ALERT_AFTER
        ),
        DurabilityProblem("marks_failing", unmarked(state, job)),
    )
    problems = tuple(each for each in found if each.reason)
    subjects = {each.kind.partition("_")[0].removesuffix("s") for each in problems}
    overdue_kinds = [pair for pair in overdue.reasons(job) if pair[0].removesuffix("s") not in subjects]
    return (
        *problems,
        *(DurabilityProblem(f"{what}_overdue", f"{what} are overdue: {why}") for what, why in overdue_kinds),
    )


def failing(state: ClusterState, job: Job) -> str:
    """Describe the checkpoints that failed since the last one was committed; "" when none has."""
    failures = _failed_in_a_row(state, job.checkpoints.keeping.checkpoints, "checkpoint")
    return f"{failures}; {_durable(job)}" if failures else ""


def uncopied(state: ClusterState, job: Job) -> str:
    """Describe the failed copies to the second storage; "" when none has failed."""
    return _failed_in_a_row(state, job.checkpoints.keeping.copies, "copy", "copies")


def unmarked(state: ClusterState, job: Job) -> str:
    """Describe why a suspect checkpoint has no mark on the storage; "" when none waits for one."""
    failures = _failed_in_a_row(state, job.checkpoints.keeping.marks, "mark of a suspect checkpoint", "marks")
    return failures or job.checkpoints.keeping.unmarked


def _failed_in_a_row(state: ClusterState, streak: Streak, one: str, many: str = "") -> str:
    if not streak.times:
        return ""
    what = f"{streak.times} {many or one + 's'} in a row" if streak.times > 1 else f"the newest {one}"
    return f"{what} failed since {clock(state, streak.since)}: {streak.reason}"


def roomless(state: ClusterState, job: Job) -> str:
    """Describe why ranks have no memory for snapshots; "" when all have, or the job does not run."""
    streak = job.checkpoints.keeping.roomless
    if not streak.times or job.phase is not JobPhase.RUNNING:
        return ""
    return f"no snapshot since {clock(state, streak.since)}: {streak.reason}; {_remembered(job)}"


def late(state: ClusterState, job: Job) -> str:
    """Describe that no checkpoint was committed for too long, though none failed; "" when none is late.

    This is the bound that administrators set: a time (`checkpoint_late_s`), whatever the cause. `overdue`
    goes by the observed pace instead, excuses justified waits, and drives the job on."""
    keeping = job.checkpoints.keeping
    if not job.spec.storage or not _trains(job) or keeping.checkpoints.times or not _has_unsaved_steps(job):
        return ""
    age_s = state.now - keeping.durable_from
    if age_s < state.settings.checkpoint_late_s:
        return ""
    flight = next(
        (f"{each.id} is in flight ({each.stage})" for each in job.checkpoints.savings.values()),
        "none is begun",
    )
    return f"no checkpoint was committed for {age_s / 60:.0f} min: {flight}; {_durable(job)}"


def _trains(job: Job) -> bool:
    return job.elastic and job.phase is JobPhase.RUNNING and bool(job.generation and job.generation.store)


def _has_unsaved_steps(job: Job) -> bool:
    """Whether some step was trained that no checkpoint holds."""
    return job.restore.newest_step > _durable_step(job)


def _durable_step(job: Job) -> int:
    good = commit.newest_good(job.checkpoints.records.values())
    return good.step if good is not None else NO_STEP


def _durable(job: Job) -> str:
    step = _durable_step(job)
    return f"the newest durable one is step {step}" if step > NO_STEP else "there is no durable one"


def _remembered(job: Job) -> str:
    return (
        f"the newest one is step {job.snapshots.released}"
        if job.snapshots.released > NO_STEP
        else "there is none"
    )


def clock(state: ClusterState, at: float) -> str:
    """Format a moment (s, the core's clock) as a time of day in UTC, with the number of days if not today."""
    moment = state.wall_s + at
    hours, rest = divmod(int(moment % DAY_S), 3600)
    days = int(state.wall // DAY_S - moment // DAY_S)
    ago = f", {days} day{'s' if days > 1 else ''} ago" if days else ""
    return f"{hours:02}:{rest // 60:02}:{rest % 60:02} UTC{ago}"
