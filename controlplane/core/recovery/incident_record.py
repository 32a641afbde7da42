"""Keep the record of a job's open incident: what it counts as, how far it is, and its one close."""

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


def count_in(m: ClusterState, job: Job, before: Cause | None) -> None:
    """A planned change is none of the failures that people count; one that a failure overtakes is."""
    now = job.recovery.incident.verdict.cause if job.recovery.incident else None
    planned = (now is Cause.RESIZED) - (before is Cause.RESIZED)
    job.recovery.planned += planned
    if planned < 0 or (before is None and not planned):
        m.begun.append(m.now)
        m.ask_health()


def came(job: Job, seats: Iterable[Placement]) -> None:
    """Say in the open incident's plan who sits now and did not before it."""
    if job.recovery.incident is None or job.generation is None:
        return
    new = tuple(seat.member for seat in seats if not job.sat_in(job.generation, seat.member))
    plan = dataclasses.replace(job.recovery.incident.plan, add=new or job.recovery.incident.plan.add)
    job.recovery.incident = dataclasses.replace(job.recovery.incident, plan=plan)


def unfinished(job: Job) -> str:
    """Names the incident that a former leader left open: what it knew of it went with it."""
    return f"incident {job.recovery.unfinished}, whose leader ended before it was over"


def tell(m: ClusterState, job: Job, phases_s: dict[str, float], **changes: object) -> None:
    """Say how far the open incident is. `detect`: injury until the core heard; `decide`: heard until
    judged; the others are added as they are known (see `rendezvous`)."""
    if job.recovery.incident is None:
        return
    known = {
        "detect": job.recovery.clock.heard - job.recovery.clock.injured,
        "decide": job.recovery.clock.judged - job.recovery.clock.heard,
    }
    phases = tuple((name, round(spent, 6)) for name, spent in (known | phases_s).items())
    job.recovery.incident = dataclasses.replace(job.recovery.incident, phases_s=phases, **changes)  # type: ignore[arg-type]
    m.emit(fx.IncidentChanged(job.recovery.incident))


def close(m: ClusterState, job: Job, outcome: str, phases_s: dict[str, float]) -> Incident | None:
    """Close the open incident, if there is one: tell its outcome, keep it among the leader's, drop its
    evidence. Returns it as it was told last."""
    tell(m, job, phases_s, outcome=outcome)
    closed = job.recovery.incident
    if closed is not None:
        m.incidents.append(closed)
    job.recovery.incident, job.recovery.evidence = None, []
    return closed
