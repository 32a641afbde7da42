"""Keep the record of a job's open incident: how it is counted, how far it is, and how it is closed.

A job has at most one open incident. Evidence that arrives while it is open extends it. `close` is the only
place that ends one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records.model import Incident, Placement
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def count_in(state: ClusterState, job: Job, before: Cause | None) -> None:
    """Count the open incident as a planned change or as a failure. `before`: its cause before this verdict,
    None when it has just been opened.

    A planned change (cause RESIZED) is not counted among the failures. When a failure overtakes it, the
    incident is a failure from then on."""
    now = job.recovery.incident.verdict.cause if job.recovery.incident else None
    planned = (now is Cause.RESIZED) - (before is Cause.RESIZED)
    job.recovery.planned += planned
    if planned < 0 or (before is None and not planned):
        state.begun.append(state.now)
        state.ask_health()


def came(job: Job, seats: Iterable[Placement]) -> None:
    """Name in the open incident's plan the members of `seats` that had no seat in the generation before."""
    if job.recovery.incident is None or job.generation is None:
        return
    new = tuple(seat.member for seat in seats if not job.sat_in(job.generation, seat.member))
    plan = dataclasses.replace(job.recovery.incident.plan, add=new or job.recovery.incident.plan.add)
    job.recovery.incident = dataclasses.replace(job.recovery.incident, plan=plan)


def unfinished(job: Job) -> str:
    """Describe the incident that a former leader left open. Of it only the number is known: the rest was in
    that leader's memory."""
    return f"incident {job.recovery.unfinished}, whose leader ended before it was over"


def report(state: ClusterState, job: Job, phases_s: dict[str, float], **changes: object) -> None:
    """Report how far the open incident is, with `changes` to its fields. `phases_s`: spans in s by phase.

    Two phases are computed here: `detect`, from the injury until the core heard of it, and `decide`, from
    then until the verdict. The caller gives the others as they become known (see `lifecycle.rendezvous`)."""
    if job.recovery.incident is None:
        return
    known = {
        "detect": job.recovery.clock.learned - job.recovery.clock.injured,
        "decide": job.recovery.clock.judged - job.recovery.clock.learned,
    }
    phases = tuple((name, round(spent, 6)) for name, spent in (known | phases_s).items())
    job.recovery.incident = dataclasses.replace(job.recovery.incident, phases_s=phases, **changes)  # type: ignore[arg-type]
    state.emit(fx.IncidentChanged(job.recovery.incident))


def close(state: ClusterState, job: Job, outcome: str, phases_s: dict[str, float]) -> Incident | None:
    """Close the open incident, if there is one: report its outcome, move it to the leader's list of closed
    incidents, and drop its evidence. Returns the record as it was reported last; None when none was open."""
    report(state, job, phases_s, outcome=outcome)
    closed = job.recovery.incident
    if closed is not None:
        state.incidents.append(closed)
    job.recovery.incident, job.recovery.evidence = None, []
    return closed
