"""Shrink a job whose nodes are gone: after a grace, when no other node has room, it goes on with the rest.

Whole replicas of the model stay or go. Survivors keep their order and get new rank numbers; a hole in one
replica is filled from another broken one. Below the job's minimum of nodes nothing shrinks: the job parks. It
grows back when nodes are there (`resizing`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint.commit import newest_good
from controlplane.core.elasticity import resizing
from controlplane.core.failures import node_checks, verdicts
from controlplane.core.placement import capacity, formation, replicas
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Placement, Plan, Strategy
from controlplane.core.records.words import some_of
from controlplane.core.recovery import incident_record, strategies
from controlplane.core.restore import sharding

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def wanting(state: ClusterState, job: Job) -> list[str]:
    """Return the nodes of dead seats that cannot be filled there: the node is lost, or takes no ranks now."""
    found = dict.fromkeys(member.node for member in job.dead())
    return [name for name in found if _given_up(state, job, name, len(job.seating.on(name)))]


def _given_up(state: ClusterState, job: Job, name: str, ranks: int) -> bool:
    node = state.nodes.get(name)
    if node is None or node.state == "lost":
        return True
    return node.up and not capacity.serves(state, job, name, ranks)


def possible(state: ClusterState, job: Job) -> int:
    """Return the number of nodes the job may shrink to now; 0: it may not, or not yet."""
    since = state.now if job.changes.short_since is None else job.changes.short_since
    if state.now < since + state.settings.shrink_after_s or _spare(state, job):
        return 0
    return 0 if lacking(state, job) else len(_left(state, job))


def layout(state: ClusterState, job: Job) -> str:
    """Describe the layout of the model on the nodes that would be left, and the reason for it."""
    before, left = job.seat_nodes(), _left(state, job)
    gone = {*wanting(state, job), *left}
    return replicas.shrunk(job.spec, len(before), len(left), [name for name in before if name not in gone])


def _reason(state: ClusterState, job: Job, missing: list[str], left: int) -> str:
    named = some_of([_named(state, name) for name in missing])
    return strategies.SHRINK.reason.format(missing=named, shrinks=left, layout=layout(state, job))


def _named(state: ClusterState, name: str) -> str:
    """A missing node, with what its check found, if that is why the job goes on without it."""
    unfit = node_checks.unfit(state, state.nodes[name]) if name in state.nodes else ""
    return f"{name} ({unfit})" if unfit else name


def _spare(state: ClusterState, job: Job) -> bool:
    return any(room.takes(job.spec.nproc_per_node) for room in capacity.idle(state, job))


def _left(state: ClusterState, job: Job) -> list[str]:
    return formation.whole_replicas(job.seat_nodes(), job.spec.replica_nodes, wanting(state, job))


def uncut(job: Job, nodes: int) -> str:
    """Return why the state cannot be brought onto so many nodes; "" when it can."""
    if sharding.forces_reshard(job, nodes) and newest_good(job.checkpoints.records.values()) is None:
        return "its state is in shards, and there is no checkpoint to cut anew for fewer ranks"
    return ""


def lacking(state: ClusterState, job: Job) -> str:
    """Return why the job does not shrink by its missing nodes; "" when it may."""
    sharding.recall(state, job)
    missing, left = wanting(state, job), _left(state, job)
    if not missing or not job.elastic or job.recovery.relaunch:
        return "its nodes are expected back"
    if state.paused:
        return f"the cluster is critical: {state.paused}"
    if not formation.usable(job.spec, len(left)):
        return f"{len(left)} of at least {formation.least(job.spec)} nodes are left"
    return uncut(job, len(left))


def reconcile(state: ClusterState, job: Job) -> None:
    """Shrink a stopped job once it has waited `shrink_after_s` for its nodes, or others with room."""
    missing = wanting(state, job)
    if not missing:
        job.changes.short_since = None
        return
    checked = any(node_checks.awaits_check(state.nodes[name]) for name in missing if state.up(name))
    if job.changes.short_since is None or checked:  # a check is over soon, and then the node may do
        job.changes.short_since = state.now
    at = job.changes.short_since + state.settings.shrink_after_s
    if state.now < at:
        state.wake(job, at)
    elif possible(state, job):
        _shrink(state, job, missing)


def _shrink(state: ClusterState, job: Job, missing: list[str]) -> None:
    left = _left(state, job)
    reason = _reason(state, job, missing, len(left))
    if job.recovery.incident is not None and job.recovery.incident.plan.strategy is not Strategy.SHRINK:
        _judge(state, job, reason)
    kept = [seat for node in left for seat in job.seating.on(node)]
    seats = [seat if seat.rank == rank else _at(rank, seat) for rank, seat in enumerate(kept)]
    resharded = sharding.forces_reshard(job, len(left))
    resizing.reseat(state, job, seats)
    job.changes.short_since = None
    job.changes.resize_at = state.now + state.settings.resize_every_s
    if resharded:
        reason += "; its shards are cut anew from the newest checkpoint"
    state.set_phase(job, JobPhase.STOPPING, reason)


def _at(rank: int, seat: Placement) -> Placement:
    return Placement(rank, seat.member, seat.node, seat.local_rank)


def _judge(state: ClusterState, job: Job, reason: str) -> None:
    """Change the open incident's plan to SHRINK: there is no new evidence, but the grace is over."""
    assert job.recovery.incident is not None
    verdict = verdicts.judge(job.name, job.recovery.evidence, job.seats)
    drop = tuple(member.name for member in job.dead())
    plan = Plan(job.name, Strategy.SHRINK, drop, (), reason)
    job.recovery.incident = dataclasses.replace(job.recovery.incident, verdict=verdict, plan=plan)
    state.emit(fx.Judged(verdict, plan, job.recovery.incident.id))
    incident_record.report(state, job, {})
