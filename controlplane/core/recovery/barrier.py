"""Bring every rank of a broken generation to the barrier: interrupt, see who is there, kill who is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.model import (
    Cause,
    Failure,
    MemberPhase,
)
from controlplane.core.state.member import Member
from controlplane.core.state.resize import HALT

if TYPE_CHECKING:
    from controlplane.core.records.model import Generation
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def gentle(m: ClusterState, job: Job) -> bool:
    """Whether members are to stop at the end of their step, not in its midst."""
    resize = job.places.resize
    return resize is not None and resize.stage == HALT and m.now < resize.hard_at


def interrupt(m: ClusterState, job: Job, reason: str, only: list[Member] | None = None) -> None:
    """Tell every node of the generation at once that it is broken; again, only where someone is behind."""
    if job.generation is None or not job.generation.store:
        return
    number, name = job.generation.number, job.name
    if number > job.recovery.interrupted[0] and not gentle(m, job):
        job.recovery.interrupted = (number, m.now)
    softly = gentle(m, job)
    keep = softly and job.places.resize is not None and job.places.resize.keep
    nodes = everywhere(job, job.generation) if only is None else [member.node for member in only]
    told = m.order_each(
        job,
        ("halt" if softly else "interrupt", str(number)),
        dict.fromkeys(nodes),
        lambda node: fx.Interrupt(node, name, number, reason, softly, keep),
    )
    everybody = told and only is None and not softly
    job.recovery.halted = (m.now, number, m.streams) if everybody else None


def halted_until(m: ClusterState, job: Job) -> float:
    """Until when (s) nobody has to be told again to stop, and somebody has to stop; 0 when that is not so."""
    if job.recovery.halted is None or job.generation is None or gentle(m, job):
        return 0.0
    at, rolls = job.recovery.halted[0], job.seating.rolls
    until = at + m.settings.retry_s
    if m.now >= min(until, job.recovery.stop_by) or job.recovery.halted[1:] != (
        job.generation.number,
        m.streams,
    ):
        return 0.0
    return until if any(rank not in rolls.dead for rank in rolls.inside) else 0.0


def everywhere(job: Job, generation: Generation) -> tuple[str, ...]:
    """The nodes of a generation, and of the seats that there are now."""
    if generation.seats == job.seats:
        return job.seat_nodes()
    return (*(seat.node for seat in generation.seats), *job.seat_nodes())


def unsure(m: ClusterState, job: Job) -> list[Member]:
    """Who is READY and may have to leave the barrier again."""
    rolls, nodes = job.seating.rolls, job.seat_nodes()
    away = frozenset(node for node in nodes if not m.up(node))
    seated = job.seated()
    left = [rank for rank in rolls.ready if rank not in rolls.entered or (away and seated[rank].node in away)]
    return [mb for mb in job.seating.at(left) if not mb.dead and not at_barrier(m, job, mb)]


def all_at_barrier(m: ClusterState, job: Job) -> bool:
    """Whether every seat has a member who is there, and sure to stay."""
    rolls = job.seating.rolls
    return not rolls.dead and len(rolls.ready) == len(job.seats) and not unsure(m, job)


def at_barrier(m: ClusterState, job: Job, member: Member) -> bool:
    """READY, and sure to stay so: its node speaks, and it has not been told of the generation that broke,
    or it has left it, or its agent has spoken of it since it must have heard of the end. A node that was not
    reached heard of no end before it was back; what it says first may be older than the generation itself."""
    if member.failure is not None or member.phase is not MemberPhase.READY or not m.up(member.node):
        return False
    broken = job.generation
    if broken is None or not broken.store or member.generation >= broken.number:
        return True
    if not job.sat_in(broken, member.name):
        return True
    number, since = job.recovery.interrupted
    told_at = max(since, m.nodes[member.node].up_since)
    return number >= broken.number and member.seen_at >= told_at + m.settings.retry_s


def kill_stuck(m: ClusterState, job: Job, behind: list[Member]) -> None:
    """Whoever has not stopped in time is dead."""
    if m.now < job.recovery.stop_by:
        m.wake(job, job.recovery.stop_by)
        return
    for member in behind:
        if m.now < member.stop_by:
            m.wake(job, member.stop_by)
        elif m.up(member.node):
            message = f"did not stop within {m.settings.stop_timeout_s:.0f} s"
            deaths.mark_dead(m, job, member, Failure(Cause.STUCK, message))
            deaths.kill(m, job, member, message)
