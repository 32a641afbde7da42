"""Nodes are gone and no others are there: after a grace the job goes on with those that are left."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint.commit import newest_good
from controlplane.core.elasticity import resizing
from controlplane.core.failures import verdicts
from controlplane.core.placement import capacity, formation, replicas
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Placement, Plan, Strategy
from controlplane.core.recovery import incident_record, strategies
from controlplane.core.restore import state_sources

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def wanting(m: ClusterState, job: Job) -> list[str]:
    """The nodes of dead seats that will not be filled where they are: given up, or unfit for them."""
    found = dict.fromkeys(member.node for member in job.dead())
    return [name for name in found if _given_up(m, job, name, len(job.seating.on(name)))]


def _given_up(m: ClusterState, job: Job, name: str, ranks: int) -> bool:
    node = m.nodes.get(name)
    if node is None or node.state == "lost":
        return True
    return node.up and not capacity.serves(m, job, name, ranks)


def possible(m: ClusterState, job: Job) -> int:
    """How many nodes the job may go on with now without those that it lacks; 0: it may not."""
    since = m.now if job.places.short_since is None else job.places.short_since
    if m.now < since + m.settings.shrink_after_s or _spare(m, job):
        return 0
    return 0 if lacking(m, job) else len(_left(m, job))


def layout(m: ClusterState, job: Job) -> str:
    """How the model lies on the nodes that are left, and why so."""
    before, left = job.seat_nodes(), _left(m, job)
    gone = {*wanting(m, job), *left}
    return replicas.shrunk(job.spec, len(before), len(left), [name for name in before if name not in gone])


def _reason(m: ClusterState, job: Job, missing: list[str], left: int) -> str:
    return strategies.SHRINK.reason.format(missing=", ".join(missing), shrinks=left, layout=layout(m, job))


def _spare(m: ClusterState, job: Job) -> bool:
    return any(room.takes(job.spec.nproc_per_node) for room in capacity.others(m, job))


def _left(m: ClusterState, job: Job) -> list[str]:
    return formation.whole_replicas(job.seat_nodes(), job.spec.replica_nodes, wanting(m, job))


def uncut(job: Job, nodes: int) -> str:
    """Why the state cannot go on with so many nodes; "" when it can."""
    if state_sources.torn(job, nodes) and newest_good(job.checkpoints.records.values()) is None:
        return "its state is in shards, and there is no checkpoint to cut anew for fewer ranks"
    return ""


def lacking(m: ClusterState, job: Job) -> str:
    """Why the job does not go on without its missing nodes; "" when it may."""
    state_sources.recall(m, job)
    missing, left = wanting(m, job), _left(m, job)
    if not missing or not job.elastic or job.recovery.relaunch:
        return "its nodes are expected back"
    if m.paused:
        return f"the cluster is critical: {m.paused}"
    if not formation.usable(job.spec, len(left)):
        return f"{len(left)} of at least {formation.least(job.spec)} nodes are left"
    return uncut(job, len(left))


def tend(m: ClusterState, job: Job) -> None:
    """While the job is stopped: shrink when it has waited long enough."""
    missing = wanting(m, job)
    if not missing:
        job.places.short_since = None
        return
    if job.places.short_since is None:
        job.places.short_since = m.now
    at = job.places.short_since + m.settings.shrink_after_s
    if m.now < at:
        m.wake(job, at)
    elif possible(m, job):
        _shrink(m, job, missing)


def _shrink(m: ClusterState, job: Job, missing: list[str]) -> None:
    left = _left(m, job)
    reason = _reason(m, job, missing, len(left))
    if job.recovery.incident is not None and job.recovery.incident.plan.strategy is not Strategy.SHRINK:
        _judge(m, job, reason)
    kept = [seat for node in left for seat in job.seating.on(node)]
    seats = [seat if seat.rank == rank else _at(rank, seat) for rank, seat in enumerate(kept)]
    cut = state_sources.torn(job, len(left))
    resizing.reseat(m, job, seats)
    job.places.short_since = None
    job.places.resize_at = m.now + m.settings.resize_every_s
    if cut:
        reason += "; its shards are cut anew from the newest checkpoint"
    m.set_phase(job, JobPhase.STOPPING, reason)


def _at(rank: int, seat: Placement) -> Placement:
    return Placement(rank, seat.member, seat.node, seat.local_rank)


def _judge(m: ClusterState, job: Job, reason: str) -> None:
    """No new evidence, but the time is over: another plan for the same verdict."""
    assert job.recovery.incident is not None
    verdict = verdicts.judge(job.name, job.recovery.evidence, job.seats)
    drop = tuple(member.name for member in job.dead())
    plan = Plan(job.name, Strategy.SHRINK, drop, (), reason)
    job.recovery.incident = dataclasses.replace(job.recovery.incident, verdict=verdict, plan=plan)
    m.emit(fx.Judged(verdict, plan, job.recovery.incident.id))
    incident_record.tell(m, job, {})
