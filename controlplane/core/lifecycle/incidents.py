"""Judge evidence of failures, plan the recovery, and carry it out until every seat is at the barrier.

A job has one open incident at a time. Evidence that arrives meanwhile extends it: all of its evidence is
judged again as one verdict, while the strategy is chosen from the new evidence. The new plan replaces the old
one, except that a relaunch of all ranks stays one. `stopping` then works on the present facts alone: it
interrupts survivors, fills dead seats, kills ranks that do not stop, parks the job when a node is missing,
and goes on to LOADING when every seat is at the barrier."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.elasticity import pausing, resizing, shrinking
from controlplane.core.failures import deaths, devices, quarantine, verdicts
from controlplane.core.lifecycle import corrupt_state, ending, launching
from controlplane.core.membership import listening
from controlplane.core.placement import capacity, device_deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import (
    Cause,
    Failure,
    Incident,
    JobPhase,
    MemberPhase,
    Placement,
    Plan,
    Role,
    Strategy,
    Verdict,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import look_gap_s
from controlplane.core.records.words import ASKED, in_words, some_of
from controlplane.core.recovery import barrier, breaks, incident_record, strategies
from controlplane.core.state.concerns import Clock
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

_EAGER = (MemberPhase.READY, MemberPhase.STARTING, MemberPhase.WARM, MemberPhase.LAUNCHED)
"""Phases of a spare that may take a seat, the soonest at the barrier first."""


def take(state: ClusterState, job: Job) -> None:
    """Judge the new evidence: open an incident, or extend the open one, and begin to carry out its plan."""
    corrupt_state.overtaken(state, job)
    fresh, job.recovery.unjudged = job.recovery.unjudged, []
    resizing.overtaken(job, fresh)
    if job.ended or job.ending is not None or job.generation is None:
        return
    if (
        job.phase is JobPhase.STORING
        and job.recovery.incident is None
        and job.generations.storing
        and not job.generations.storing.store
    ):
        return  # a new launch is on its way into etcd: members lost before that are judged after it
    job.recovery.evidence += fresh
    listening.noticed(job, fresh)
    device_deaths.count_deaths(state, job, fresh)
    quarantine.charge_judged(state, fresh)
    verdict = breaks.with_records(job, verdicts.judge(job.name, job.recovery.evidence, job.seats))
    cause, reason = _strategy(state, job, fresh)
    plan = _plan(state, job, cause, reason)
    _record(state, job, verdict, plan)
    _begin(state, job, verdict, plan)
    breaks.ask(state, job, fresh)


def _strategy(state: ClusterState, job: Job, fresh: list[Evidence]) -> tuple[Strategy, str]:
    failure = verdicts.root(fresh).failure
    job.recovery.returned = job.recovery.returned or job.phase is JobPhase.LEAVING
    dead = job.dead()
    ready = [name for name in spares(job).values() if job.members[name].phase is MemberPhase.READY]
    shrinks = shrinking.possible(state, job) if dead else 0
    situation = strategies.Situation(
        elastic=job.elastic and (job.recovery.returned or not job.recovery.relaunch),
        after_return=job.recovery.returned,
        barrier=job.barrier or job.restore.known_step > 0,
        exception=failure.exception,
        repeats=_count(job, verdicts.root(fresh)),
        restarts=job.generation.restarts if job.generation else 0,
        max_restarts=job.spec.max_restarts,
        dead=len(dead),
        nodes_up=all(capacity.serves(state, job, member.node) for member in dead),
        shrinks=shrinks,
        layout=shrinking.layout(state, job) if shrinks else "",
        missing=some_of(shrinking.wanting(state, job)),
        planned=job.changes.resize.strategy if job.changes.resize and failure.cause is Cause.RESIZED else "",
        why=job.changes.resize.reason if job.changes.resize else "",
        spares=len(ready) == len(dead),
        on_fault=job.numbers.on_fault,
    )
    strategy, reason = strategies.choose(failure.cause, situation)
    if strategy is Strategy.STOP:
        reason = "\n".join(part for part in (f"{reason}: {failure.message}", failure.traceback) if part)
    return strategy, reason


def _count(job: Job, first: Evidence) -> int:
    """Count this failure, and return how often it was seen; nodes that restarted count within one hour.

    Several ranks that fail alike in one generation are one failure. A rank that fails so again in the same
    generation (in a second process) is another one."""
    key = verdicts.repeat_key(first.failure, after_return=job.recovery.returned)
    if first.failure.cause is Cause.NODE_RESTARTED:
        recent = [at for at in job.recovery.node_restarts if at > first.learned_at - strategies.HOUR_S]
        job.recovery.node_restarts = [*recent, first.learned_at]
        return len(job.recovery.node_restarts)
    if first.failure.cause not in strategies.UNCOUNTED:
        seen = job.recovery.counted.setdefault((key, job.generation_number), [])
        if not seen or first.rank in seen:
            job.recovery.failures_seen[key] = job.recovery.failures_seen.get(key, 0) + 1
        seen.append(first.rank)
    return job.recovery.failures_seen.get(key, 0)


def _plan(state: ClusterState, job: Job, strategy: Strategy, reason: str) -> Plan:
    drop = tuple(member.name for member in job.dead())
    add: tuple[str, ...] = ()
    if strategy is Strategy.RELAUNCH:
        drop = tuple(seat.member for seat in job.seats)
    elif strategy in (Strategy.SPARE, Strategy.RESPAWN):
        add = tuple(spares(job).values())
    return Plan(job.name, strategy, drop, add, reason)


def _record(state: ClusterState, job: Job, verdict: Verdict, plan: Plan) -> None:
    first = verdicts.root(job.recovery.evidence)
    number = job.generation_number
    if job.recovery.incident is None:
        job.recovery.incidents += 1
        if job.recovery.unfinished:
            goes_on = f"incident {job.recovery.incidents} goes on with it"
            state.note(NoteKind.INCIDENT_OVERTAKEN, job.name, f"{incident_record.unfinished(job)}: {goes_on}")
            job.recovery.unfinished = 0
        job.recovery.clock = Clock(injured=first.injured_at, learned=first.learned_at, judged=state.now)
        job.recovery.incident = Incident(job.recovery.incidents, job.name, verdict, plan, number)
        incident_record.count_in(state, job, None)
    else:
        before = job.recovery.incident.verdict.cause
        job.recovery.incident = dataclasses.replace(job.recovery.incident, verdict=verdict, plan=plan)
        incident_record.count_in(state, job, before)
    job.recovery.clock.stored = 0.0
    job.recovery.phases = {}
    state.emit(fx.Judged(verdict, plan, job.recovery.incident.id))


def _begin(state: ClusterState, job: Job, verdict: Verdict, plan: Plan) -> None:
    job.recovery.broken_since = None
    job.generations.storing = job.restore.restoring = None
    job.generations.letting_go = (0, "")
    job.recovery.stop_by = state.now + state.settings.stop_timeout_s
    reason = verdict.evidence[0] if verdict.evidence else plan.reason
    if plan.strategy is not Strategy.RELAUNCH and not job.recovery.returned:
        barrier.interrupt(state, job, reason)
    if plan.strategy is Strategy.STOP:
        ending.end(state, job, JobPhase.FAILED, plan.reason)
        return
    job.recovery.relaunch = job.recovery.relaunch or plan.strategy is Strategy.RELAUNCH
    state.set_phase(job, JobPhase.STOPPING, _words(verdict, plan))
    incident_record.report(state, job, {})


def _words(verdict: Verdict, plan: Plan) -> str:
    failed = f"{verdict.scope} failure, {in_words(verdict.cause)}"
    return f"{'planned' if verdict.cause is Cause.RESIZED else failed}: {plan.reason}"


def spares(job: Job) -> dict[int, str]:
    """Return by rank, for each dead seat, the living spare on its node that will be READY soonest."""
    picks: dict[int, str] = {}
    pools: dict[str, list[Member]] = {}
    for member in job.dead():
        if member.node not in pools:
            pools[member.node] = _pool(job, member.node)
        if pools[member.node]:
            picks[member.rank] = pools[member.node].pop(0).name
    return picks


def _pool(job: Job, node: str) -> list[Member]:
    here = [mb for mb in job.by_node[node].values() if mb.role is Role.SPARE and not mb.dead]
    return sorted((mb for mb in here if mb.phase in _EAGER), key=lambda mb: _EAGER.index(mb.phase))


def stopping(state: ClusterState, job: Job) -> None:
    """Bring every seat to the barrier: interrupt survivors, fill dead seats, kill ranks that do not stop."""
    if job.recovery.relaunch:
        _relaunching(state, job)
        return
    if resizing.holds(state, job):
        return
    _fill_seats(state, job)
    shrinking.reconcile(state, job)
    launching.order_launches(state, job)
    if until := barrier.halted_until(state, job):
        state.wake(job, min(until, job.recovery.stop_by))
        return
    rank_sets = job.seating.rank_sets
    inside = job.seating.at(rank for rank in rank_sets.inside if rank not in rank_sets.dead)
    doubtful = barrier.unsure(state, job)
    if inside or doubtful:
        barrier.interrupt(state, job, job.reason, inside + doubtful)
        barrier.kill_stuck(state, job, inside)
        return
    away = sorted(dict.fromkeys(member.node for member in job.dead()))
    if away:
        state.set_phase(job, JobPhase.PARKED, _waits(state, job, away))
    elif job.phase is JobPhase.PARKED:
        state.set_phase(job, JobPhase.STOPPING, "every seat has a node again")
    if away or len(rank_sets.ready) < len(job.seats):
        return
    if job.changes.pause and not job.recovery.relaunch:
        pausing.rest(state, job)
    else:
        state.set_phase(job, JobPhase.LOADING, "every rank is at the barrier: the nearest state is chosen")


def _fill_seats(state: ClusterState, job: Job) -> None:
    dead = job.dead()
    picks = spares(job)
    moves = _moves(state, job)
    for leaver in dead:
        seat = job.seating.seat(leaver.rank)
        node = moves.get(seat.node, seat.node)
        place = _place(state, job, seat, node)
        if not capacity.serves(state, job, node) or place is None:
            continue
        name = picks.get(seat.rank, "") if node == seat.node else ""
        _seat(state, job, Placement(seat.rank, name or state.new_member(job.name), node, place))


def _seat(state: ClusterState, job: Job, seat: Placement) -> None:
    member = job.add(Member(seat.member, job.name, seat.node, Role.RANK))
    member.role, member.rank = Role.RANK, seat.rank
    if job.generation is not None and member.phase in ASKED:
        job.sent.drop(("launch", member.node, member.name))
        member.launch = launching.launch(job, seat, job.generation)
    job.seating.put(seat, member)
    job.changed(member)


def _moves(state: ClusterState, job: Job) -> dict[str, str]:
    """Choose, for each node whose dead seats cannot be filled there, an idle node that takes all of them.

    In a large cluster a job that waits for its ranks looks at all nodes now and then only (`look_gap_s`)."""
    lost = shrinking.wanting(state, job)
    if not lost:
        return {}
    again_at = job.recovery.sought_at + look_gap_s(len(state.nodes))
    if state.now < again_at:
        state.wake(job, again_at)
        return {}
    job.recovery.sought_at = state.now
    free = [] if state.paused else sorted(capacity.idle(state, job), key=lambda room: (room.last, room.node))
    moves: dict[str, str] = {}
    for name in lost:
        seats = job.seating.on(name)
        fit = next((room for room in free if room.takes(len(seats))), None)
        if fit is not None and all(job.members[seat.member].dead for seat in seats):
            free.remove(fit)
            moves[name] = fit.node
            state.note(NoteKind.SEATS_MOVED, job.name, f"ranks of {name} go to {moves[name]}")
    return moves


def _place(state: ClusterState, job: Job, seat: Placement, node: str) -> int | None:
    """Return the local rank for a seat on this node: its own, or a free one where that cannot be used; None
    when there is none."""
    found = state.nodes.get(node)
    taken = [s.local_rank for s in job.seating.on(node) if s is not seat]
    free = [p for p in devices.places(found) if p not in taken] if found is not None else []
    if seat.local_rank in free:
        return seat.local_rank
    return free[0] if free else None


def _waits(state: ClusterState, job: Job, away: list[str]) -> str:
    reason = f"waits for {some_of(away)}, or another node with room"
    lacking = shrinking.lacking(state, job) if job.spec.nnodes_min < job.spec.nnodes_max else ""
    return f"{reason}; {lacking}" if lacking else reason


def _relaunching(state: ClusterState, job: Job) -> None:
    """Start every rank again. Those that still live are killed first, so that none holds a device or port."""
    left = [
        mb for mb in job.seated() if mb.alive and mb.phase is not MemberPhase.RAISED and state.up(mb.node)
    ]
    for member in left:
        member.failure = member.failure or Failure(Cause.EXITED, "its job is started again")
        job.changed(member)
        deaths.kill(state, job, member, member.failure.message)
    if left:
        return
    seats = job.generation.seats if job.generation else job.seats
    wanted = len(
        dict.fromkeys(place.node for place in (job.changes.resize.spots if job.changes.resize else seats))
    )
    least = job.spec.nnodes_min
    why = shrinking.uncut(job, least) if job.recovery.returned and least < wanted else ""
    nodes = launching.gather(state, job, wanted if why else least, max(wanted, least), why)
    if nodes is not None:
        planned = job.recovery.incident is not None and job.recovery.incident.verdict.cause is Cause.RESIZED
        restarts = (job.generation.restarts if job.generation else 0) + (0 if planned else 1)
        job.changes.resize, job.changes.resize_at = None, state.now + state.settings.resize_every_s
        for member in job.seated():
            if not member.dead:
                member.failure = Failure(Cause.EXITED, "its job is started again")
                job.changed(member)
        launching.launch_generation(state, job, nodes, job.reason, restarts)
