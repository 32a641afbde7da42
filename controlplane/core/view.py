"""Show a cluster to people: read-only rows for `holdfast status`, `/metrics` and the status page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import health as health_of
from controlplane.core.checkpoint import overdue
from controlplane.core.checkpoint.commit import newest_good
from controlplane.core.failures import eligibility, marks, quarantine
from controlplane.core.records.model import NO_STEP, MemberPhase
from controlplane.core.records.words import GONE
from controlplane.core.rows import HealthRow, JobRow, NodeRow, RankRow
from controlplane.core.state.findings import Level
from holdfast import masking as arguments

if TYPE_CHECKING:
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.model import CheckpointRecord, Incident
    from controlplane.core.state.cluster_state import Node
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def jobs(cluster: Cluster, now: float) -> tuple[JobRow, ...]:
    """All jobs, by name."""
    return tuple(job_row(cluster, job) for _, job in sorted(cluster.state.jobs.items()))


def job_row(cluster: Cluster, job: Job) -> JobRow:
    """One job, with its health by its own findings."""
    good = newest_good(job.checkpoints.records.values())
    found = [each for each in cluster.state.findings.values() if each.job == job.name and not job.ended]
    # What it waits for says more than what slowed its steps.
    found.sort(key=lambda each: (each.level is not Level.CRITICAL, each.rule == "diagnosis"))
    return JobRow(
        job=job.name,
        phase=job.phase.value,
        reason="; ".join((job.reason, *(f"{what} are overdue: {why}" for what, why in overdue.reasons(job)))),
        generation=job.generation_number,
        world_size=len(job.seats),
        step=min((completed(member) for member in job.seated()), default=NO_STEP),
        restarts=job.generation.restarts if job.generation else 0,
        incidents=job.failed_times,
        last_checkpoint=good.id if good else "",
        argv=" ".join(arguments.shown(job.spec.argv)),
        health="" if job.ended else health_of.level(found).value,
        troubles=tuple(each.reason for each in found),
    )


def completed(member: Member) -> int:
    """Steps that a member is known to have completed; NO_STEP when nothing is known."""
    status = member.status
    if status is None:
        return NO_STEP
    return max(status.held_step, status.step if status.phase is MemberPhase.RUNNING else NO_STEP)


def nodes(cluster: Cluster, now: float) -> tuple[NodeRow, ...]:
    """All nodes, by name."""
    here: dict[str, int] = {}
    for job in cluster.state.jobs.values():
        for member in job.members.values():
            if member.alive:
                here[member.node] = here.get(member.node, 0) + 1
    rows = sorted(cluster.state.nodes.items())
    return tuple(node_row(cluster, now, node, here.get(name, 0)) for name, node in rows)


def node_row(cluster: Cluster, now: float, node: Node, members: int) -> NodeRow:
    """One node with `members` living processes."""
    state, word = cluster.state, eligibility.word(cluster.state, node)
    return NodeRow(
        node=node.name,
        state=node.shown,
        address=node.address,
        incarnation=node.incarnation,
        slots=node.slots,
        members=members,
        last_heard_s=max(0.0, now - node.last_contact_at),
        standing=marks.word(node) or word[0],
        score=quarantine.decayed(
            node.failure_history, state.wall_s + now, cluster.settings.lemon_half_life_s
        ),
        connected_s=max(0.0, now - node.up_since) if node.up else 0.0,
        reason=node.reason
        or marks.reason(node)
        or word[1]
        or "; ".join(f"{d}: {why}" for d, why in node.bad_devices.items()),
    )


def health(cluster: Cluster, now: float) -> HealthRow:
    """The cluster's health as it was last assessed, with every reason, worst first."""
    found = list(cluster.state.findings.values())
    reasons = tuple(f"{f.subject}: {f.reason}" if f.subject else f.reason for f in found)
    return HealthRow(health_of.level(found).value, reasons, tuple(f.job for f in found))


def ranks(cluster: Cluster, now: float) -> tuple[RankRow, ...]:
    """Living members of all jobs that have not ended: by job, ranks first, then spares."""
    rows = []
    for _, job in sorted(cluster.state.jobs.items()):
        living = [mb for mb in job.members.values() if not job.ended and mb.phase not in GONE]
        living.sort(key=lambda mb: (mb.rank < 0, mb.rank, mb.node, mb.name))
        rows += [rank_row(member) for member in living if not member.dead]
    return tuple(rows)


def rank_row(member: Member) -> RankRow:
    """One member as a row."""
    status = member.status
    return RankRow(
        job=member.job,
        rank=member.rank,
        member=member.name,
        node=member.node,
        phase=member.phase.value,
        role=member.role.value,
        generation=status.generation if status else 0,
        step=max(status.step, status.held_step) if status else NO_STEP,
        pid=status.pid if status else 0,
        stalled_s=status.stalled_s if status else 0.0,
    )


def checkpoints(cluster: Cluster, now: float) -> tuple[CheckpointRecord, ...]:
    """All checkpoints that etcd holds, by job, oldest first."""
    return tuple(
        record
        for _, job in sorted(cluster.state.jobs.items())
        for record in sorted(job.checkpoints.records.values(), key=lambda r: (r.step, r.generation))
    )


def incidents(cluster: Cluster, now: float) -> tuple[Incident, ...]:
    """Incidents of this leader's term: closed ones, oldest first, then open ones."""
    still = [job.recovery.incident for job in cluster.state.jobs.values() if job.recovery.incident]
    return (*cluster.incidents, *still)
