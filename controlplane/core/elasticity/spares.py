"""Keep warm spares beside the ranks, and bring them to the barrier once the script is known to use the SDK.

Until then a spare is an interpreter that has imported torch (`warm_only`). A plain script has no barrier, so
its spares stay that way: they only make its next start fast."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import deaths
from controlplane.core.placement import launches
from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_RANK, Cause, Failure, JobPhase, MemberPhase, Role
from controlplane.core.records.words import ASKED, GONE
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState

_TENDED = (JobPhase.LAUNCHING, JobPhase.RUNNING)


def reconcile(state: ClusterState, job: Job) -> None:
    """Keep the wanted number of spares on every node of the job.

    Not while an incident is open: recovery comes first, and a process that starts takes cores from the ranks.
    A node whose spares have failed more than `max_restarts` times gets no further ones."""
    if job.phase not in _TENDED or job.recovery.incident is not None or job.generation is None:
        return
    if job.spec.spares_per_node == 0 or any(map(_unseen, job.seated())):
        return
    wanted = _wanted(state, job)
    for node in job.seat_nodes():
        if not state.up(node):
            continue
        here = [mb for mb in job.by_node.get(node, {}).values() if mb.role is Role.SPARE and not mb.dead]
        spent = job.recovery.spare_failures.get(node, 0) > job.spec.max_restarts
        here += [new(state, job, node) for _ in range(0 if spent else wanted - len(here))]
        _dismiss(state, job, here, len(here) - wanted)
        for member in here:
            if not member.dead:
                order(state, job, member)


def _dismiss(state: ClusterState, job: Job, here: list[Member], count: int) -> None:
    """End so many spares of a node, if they are interpreters that do not run the script yet.

    A script that is slow to reach the SDK was taken for a plain one, and got a spare for each rank. Each of
    them would build the model once it is known better, and need its memory on a device."""
    if count <= 0 or not job.elastic:
        return
    idle = [mb for mb in here if mb.phase in ASKED and (mb.launch is None or mb.launch.warm_only)]
    for member in idle[max(0, len(idle) - count) :]:
        why = "it is not needed: the script uses the SDK after all, and has its spares"
        deaths.mark_dead(state, job, member, Failure(Cause.RESIZED, why))
        deaths.kill(state, job, member, why)


def _unseen(member: Member) -> bool:
    return member.status is None or member.phase is MemberPhase.LAUNCHED or member.phase in GONE


def _wanted(state: ClusterState, job: Job) -> int:
    """Return the spares per node; for a plain script at least one per rank: its ranks restart together."""
    spec = job.spec
    plain = not job.elastic and state.now >= job.generations.launched_at + state.settings.plain_after_s
    return max(spec.spares_per_node, spec.nproc_per_node) if plain else spec.spares_per_node


def new(state: ClusterState, job: Job, node: str, local_rank: int = NO_RANK) -> Member:
    """Add a spare member to the job; `order` then has it launched."""
    member = job.add(Member(state.new_member(job.name), job.name, node, Role.SPARE))
    member.launch = _launch(job, member, local_rank)
    return member


def _launch(job: Job, member: Member, local_rank: int) -> fx.Launch:
    """Return the order that launches a spare: it runs the script up to the barrier if the job is elastic."""
    return fx.Launch(
        member.node, member.name, job.spec, Role.SPARE, local_rank=local_rank,
        warm_only=not job.elastic, generation=job.generation,
    )  # fmt: skip


def order(state: ClusterState, job: Job, member: Member, local_rank: int = NO_RANK) -> None:
    """Send a spare's launch order until its effect is seen. Once the job is elastic, it runs the script."""
    if launches.orphaned(member):
        member.launch = _launch(job, member, local_rank)
    if member.launch is None:
        return
    key = ("launch", member.node, member.name)
    if job.elastic and member.launch.warm_only:
        member.launch = dataclasses.replace(member.launch, warm_only=False)
        job.sent.drop(key)
    seen = (MemberPhase.LAUNCHED,) if member.launch.warm_only else ASKED
    if member.phase in seen:
        state.order(job, key, member.launch)
