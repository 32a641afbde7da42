"""Bring every rank of a broken generation to the barrier: interrupt it, check that it is there, or kill it.

The next generation may form only when every seat has a member that is READY and will stay READY. A status of
READY alone does not prove that. It may be older than the generation that broke: the rank was at the barrier,
the order to form was still on its way to it, and it will leave the barrier once that order arrives.
`at_barrier` says which further proof is asked for. Interrupts are repeated every `retry_s` until each rank is
there; a rank that is still inside the generation after `stop_timeout_s` is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.model import (
    Cause,
    Failure,
    MemberPhase,
)
from controlplane.core.recovery import slow_barriers
from controlplane.core.state.member import Member
from controlplane.core.state.resize import HALT

if TYPE_CHECKING:
    from controlplane.core.records.model import Generation
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def gentle(state: ClusterState, job: Job) -> bool:
    """Whether ranks are to stop at the end of their step, and not in the middle of it.

    True only for a planned change that waits for the step boundary, until its deadline `hard_at`."""
    resize = job.changes.resize
    return resize is not None and resize.stage == HALT and state.now < resize.hard_at


def interrupt(state: ClusterState, job: Job, reason: str, only: list[Member] | None = None) -> None:
    """Order the nodes of the generation to stop its ranks; each node gets the order again every `retry_s`.

    `only`: the members that are not at the barrier yet, so that a repetition goes to their nodes alone.
    None: all nodes. A generation without a TCPStore (`Generation.store`) has no groups to interrupt."""
    if job.generation is None or not job.generation.store:
        return
    number, name = job.generation.number, job.name
    if number > job.recovery.interrupted[0] and not gentle(state, job):
        job.recovery.interrupted = (number, state.now)
    softly = gentle(state, job)
    keep = softly and job.changes.resize is not None and job.changes.resize.keep
    nodes = everywhere(job, job.generation) if only is None else [member.node for member in only]
    sent_now = state.order_each(
        job,
        ("halt" if softly else "interrupt", str(number)),
        dict.fromkeys(nodes),
        lambda node: fx.Interrupt(node, name, number, reason, softly, keep),
    )
    everybody = sent_now and only is None and not softly
    job.recovery.halted = (state.now, number, state.streams) if everybody else None


def halted_until(state: ClusterState, job: Job) -> float:
    """Deadline (s) before which no Interrupt is resent while ranks are still stopping; 0 if not applicable.

    Until then a job of many ranks need not be looked at rank by rank. It does not apply when an Interrupt
    could not be sent to every node, the stop timeout has run out, another generation is there, or a node's
    stream began anew (what was sent on its old stream may be lost)."""
    if job.recovery.halted is None or job.generation is None or gentle(state, job):
        return 0.0
    at, rank_sets = job.recovery.halted[0], job.seating.rank_sets
    until = at + state.settings.retry_s
    if state.now >= min(until, job.recovery.stop_by) or job.recovery.halted[1:] != (
        job.generation.number,
        state.streams,
    ):
        return 0.0
    return until if any(rank not in rank_sets.dead for rank in rank_sets.inside) else 0.0


def everywhere(job: Job, generation: Generation) -> tuple[str, ...]:
    """Return the nodes of a generation's seats and of the job's present seats; a node may occur twice."""
    if generation.seats == job.seats:
        return job.seat_nodes()
    return (*(seat.node for seat in generation.seats), *job.seat_nodes())


def unsure(state: ClusterState, job: Job) -> list[Member]:
    """Return the living members that are READY, but are not sure to stay at the barrier.

    Only ranks that have not entered the generation, or whose node is away, can be in doubt: the others are
    left out without a look."""
    rank_sets, nodes = job.seating.rank_sets, job.seat_nodes()
    away = frozenset(node for node in nodes if not state.up(node))
    seated = job.seated()
    left = [
        rank
        for rank in rank_sets.ready
        if rank not in rank_sets.entered or (away and seated[rank].node in away)
    ]
    return [mb for mb in job.seating.at(left) if not mb.dead and not at_barrier(state, job, mb)]


def all_at_barrier(state: ClusterState, job: Job) -> bool:
    """Whether every seat has a living member that is READY and sure to stay so."""
    rank_sets = job.seating.rank_sets
    return not rank_sets.dead and len(rank_sets.ready) == len(job.seats) and not unsure(state, job)


def at_barrier(state: ClusterState, job: Job, member: Member) -> bool:
    """Whether a member is READY and sure to stay so until it is given another generation.

    Its node must be up, and one of these must hold:
    - no generation was formed before, or the member had no seat in the broken one;
    - it has entered the broken generation, and so has left it again;
    - its agent reported it READY at least `retry_s` after the Interrupt was sent: the agent has heard of the
      generation's end by then.
    A node that was away gets the Interrupt only after it is back, and its first report may be older than the
    generation itself. There the span counts from `up_since`."""
    if member.failure is not None or member.phase is not MemberPhase.READY or not state.up(member.node):
        return False
    broken = job.generation
    if broken is None or not broken.store or member.generation >= broken.number:
        return True
    if not job.sat_in(broken, member.name):
        return True
    number, since = job.recovery.interrupted
    ordered_at = max(since, state.nodes[member.node].up_since)
    return number >= broken.number and member.seen_at >= ordered_at + state.settings.retry_s


def kill_stuck(state: ClusterState, job: Job, inside: list[Member]) -> None:
    """Mark dead and kill the members `inside` that did not come to the barrier before the stop deadline. At
    half of the time their nodes are asked how they stand.

    A member's own `stop_by` gives it more time when its node came back late. Members on nodes that cannot be
    reached are left alone: the node's own deadline decides about them."""
    ask_at = job.recovery.stop_by - state.settings.stop_timeout_s / 2
    if inside and state.now >= ask_at:
        slow_barriers.ask(state, job, inside)
    if state.now < job.recovery.stop_by:
        state.wake(job, ask_at if state.now < ask_at else job.recovery.stop_by)
        return
    for member in inside:
        if state.now < member.stop_by:
            state.wake(job, member.stop_by)
        elif state.up(member.node):
            message = f"did not stop within {state.settings.stop_timeout_s:.0f} s"
            failure = slow_barriers.explained(job, member, Failure(Cause.STUCK, message))
            deaths.mark_dead(state, job, member, failure)
            deaths.kill(state, job, member, failure.message)
