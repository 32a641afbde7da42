"""Launch a job: gather nodes, put a generation into etcd, and start its members.

This generation has no TCPStore to meet at (`Generation.store` is ""): it only says who is which rank.
Launch orders go out once etcd holds it, so that the next leader knows every member that may run. A job that
uses the SDK then waits for its ranks at the barrier; a plain script simply runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import node_checks
from controlplane.core.lifecycle import ending, generations
from controlplane.core.placement import capacity, formation, launches, replicas
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Generation, JobPhase, MemberPhase, Resume, Role, Tier
from controlplane.core.records.words import some_of
from controlplane.core.recovery import incident_record
from controlplane.core.restore import sharding
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.model import Placement
    from controlplane.core.state.cluster_state import ClusterState


def pending(state: ClusterState, job: Job) -> None:
    """Launch the job once its former processes have ended and enough nodes are there."""
    if _remnants(state, job):
        return
    nodes = gather(state, job, formation.least(job.spec), job.spec.nnodes_max)
    if nodes is not None:
        reason = "the first launch" if job.generation is None else "launched again after its end"
        launch_generation(state, job, nodes, reason, restarts=0)


def _remnants(state: ClusterState, job: Job) -> bool:
    """Order the processes of the job's former run to end; True while some are, or may be, left.

    A member on a node that has not reported yet may well still train, so it is waited for too."""
    there = [member for member in job.members.values() if member.alive or _not_reported(member)]
    left = [member for member in there if not _is_lost(state, member.node)]
    for member in left:
        ending.order_complete(state, job, member.node, ok=False, reason="the job is started again")
    if left:
        state.set_phase(job, JobPhase.PENDING, f"waits for {len(left)} processes of its former life to end")
    return bool(left)


def _not_reported(member: Member) -> bool:
    """Whether a former leader launched a member and its node has not reported it to this leader."""
    return member.status is None and member.launch is None and not member.dead


def _is_lost(state: ClusterState, node: str) -> bool:
    """Whether a node was given up: what it left is killed if it ever returns."""
    return node in state.nodes and state.nodes[node].state == "lost"


def gather(state: ClusterState, job: Job, least: int, most: int, why: str = "") -> list[str] | None:
    """Return the nodes to launch on: at once when `most` are there, after `join_grace_s` when at least
    `least` are; None: wait. The phase's reason says what is missing. `why`: added to it when there are fewer
    than `least`."""
    if state.paused:
        state.set_phase(
            job, job.phase, f"nothing new is started while the cluster is critical: {state.paused}"
        )
        return None
    found = capacity.rooms(state, job)
    fit = formation.fitting(job.spec, found)
    most = formation.usable(job.spec, most) or most
    least = max(least, formation.least(job.spec))
    if len(fit) < least:
        job.changes.gathered_at = None
        phase = JobPhase.PENDING if job.phase is JobPhase.PENDING else JobPhase.PARKED
        short = formation.shortage(job.spec, found, least)
        state.set_phase(job, phase, f"{short}; {why}" if why else short)
        return None
    if job.changes.gathered_at is None:
        job.changes.gathered_at = state.now
    until, kept_out = job.changes.gathered_at + _grace_s(state, found), _kept_out(state, found)
    if len(fit) < most and state.now < until:
        state.wake(job, until)
        there = f"{len(fit)} nodes are there; waits a little for up to {most}"
        state.set_phase(job, job.phase, there + kept_out)
        return None
    if kept_out:
        state.set_phase(job, job.phase, f"{len(fit)} nodes are there{kept_out}")
    job.changes.gathered_at = None
    return fit[: formation.usable(job.spec, min(len(fit), most)) or most]


def _grace_s(state: ClusterState, rooms: Sequence[formation.Capacity]) -> float:
    """How long to wait for more nodes: longer while one is being checked, as that is over soon."""
    checks = (state.nodes[room.node].check for room in rooms)
    if any(check.asked or check.judging for check in checks):
        return max(state.settings.join_grace_s, state.settings.check_timeout_s)
    return state.settings.join_grace_s


def _kept_out(state: ClusterState, rooms: Sequence[formation.Capacity]) -> str:
    """Which nodes take no ranks because of their check, as the end of a sentence."""
    nodes = (state.nodes[room.node] for room in rooms)
    reasons = ((node.name, node_checks.keeps_out(state, node)) for node in nodes)
    named = some_of([f"{name} ({why})" for name, why in reasons if why])
    return f"; not to be used: {named}" if named else ""


def launch_generation(state: ClusterState, job: Job, nodes: list[str], reason: str, restarts: int) -> None:
    """Seat members on `nodes` and put the generation into etcd; they are launched once etcd holds it."""
    nodes = replicas.arrange(nodes, job.spec.replica_nodes, capacity.domains(state, nodes))
    names = _names(state, job, nodes)
    seats = formation.layout(job.spec, nodes, names, capacity.rooms(state, job))
    job.generations.number += 1
    first = state.nodes[nodes[0]]
    generation = Generation(
        job=job.name,
        number=job.generations.number,
        term=state.term,
        seats=seats,
        store="",
        master=f"{first.address}:{first.port}",
        resume=Resume(Tier.FRESH, 0, 0, reason="every rank is launched; none has spoken yet"),
        reason=reason,
        restarts=restarts,
        cut_at=sharding.epoch(job, len(seats), job.generations.number),
    )
    for seat in seats:
        member = job.add(Member(seat.member, job.name, seat.node, Role.RANK))
        member.role, member.rank = Role.RANK, seat.rank
        member.launch = launch(job, seat, generation)
    job.sit(seats)
    job.generations.storing = generation
    state.set_phase(job, JobPhase.STORING, f"generation {generation.number} is on its way into etcd")
    effect = fx.StoreJob(job.name, job.state(JobPhase.LAUNCHING, reason), generation=generation)
    state.store(f"job/{job.name}", effect, lambda: _stored(state, job, generation))


def _names(state: ClusterState, job: Job, nodes: list[str]) -> list[str]:
    """Name the members of the seats: warm interpreters on the nodes first, as they have imported torch."""
    names = []
    for node in nodes:
        warm = [
            member.name
            for member in job.members.values()
            if member.node == node
            and member.role is Role.SPARE
            and not member.dead
            and member.phase is MemberPhase.WARM
        ][: job.spec.nproc_per_node]
        names += warm
        names += [state.new_member(job.name) for _ in range(job.spec.nproc_per_node - len(warm))]
    return names


def launch(job: Job, seat: Placement, generation: Generation) -> fx.Launch:
    """Return the order that launches the member of a seat."""
    return fx.Launch(
        seat.node,
        seat.member,
        job.spec,
        Role.RANK,
        rank=seat.rank,
        local_rank=seat.local_rank,
        generation=generation,
    )


def _stored(state: ClusterState, job: Job, generation: Generation) -> None:
    if not generations.commit(state, job, generation):
        return
    job.generations.sharding_epoch, job.generations.launched_at = generation.cut_at, state.now
    job.recovery.relaunch = job.recovery.returned = job.generations.onward = False
    for member in job.seated():
        job.sent.drop(("launch", member.node, member.name))
    for member in job.dead():
        if member.failure is not None:  # it was lost while the generation was on its way into etcd
            job.recovery.unjudged.append(
                Evidence(state.now, member.failure, member.name, member.node, member.rank)
            )
    incident_record.report(
        state, job, {"fence": state.now - job.recovery.clock.judged}, generation_after=generation.number
    )
    state.set_phase(job, JobPhase.LAUNCHING, generation.reason)
    state.touch(job)


def order_launches(state: ClusterState, job: Job) -> bool:
    """Repeat the launch orders of members that do not run their script. Returns whether all of them do."""
    waits = job.seating.at(job.seating.rank_sets.asked)
    for member in waits:
        if launches.orphaned(member) and job.generation is not None:
            member.launch = launch(job, job.seating.seat(member.rank), job.generation)
            job.changed(member)
        launches.watch(state, job, member)
        if member.launch is not None:
            state.order(job, ("launch", member.node, member.name), member.launch)
    return not waits


def launching(state: ClusterState, job: Job) -> None:
    """Wait until the members run. An elastic job goes on when all are at the barrier, a plain one at once."""
    if not order_launches(state, job):
        return
    if not job.elastic:
        state.set_phase(job, JobPhase.RUNNING, "every rank runs its script; none has used the SDK so far")
        return
    if len(job.seating.rank_sets.ready) == len(job.seats):
        state.set_phase(job, JobPhase.LOADING, "every rank is at the barrier: the nearest state is chosen")
