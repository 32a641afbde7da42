"""A failure from its evidence to a plan, and the plan until every seat is at the barrier again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.elasticity import pausing, resizing, shrinking
from controlplane.core.failures import devices, quarantine, verdicts
from controlplane.core.lifecycle import ending
from controlplane.core.membership import members
from controlplane.core.placement import placing
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
from controlplane.core.records.words import ASKED
from controlplane.core.recovery import incident_facts, strategies
from controlplane.core.state.job import Clock
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.records.model import Generation
    from controlplane.core.state.job import Job
    from controlplane.core.state.machine import Machine

_EAGER = (MemberPhase.READY, MemberPhase.STARTING, MemberPhase.WARM, MemberPhase.LAUNCHED)


def take(m: Machine, job: Job) -> None:
    """Judge what is new, open an incident or extend the open one, and order its plan."""
    fresh, job.fresh = job.fresh, []
    resizing.overtaken(job, fresh)
    if job.ended or job.ending is not None or job.generation is None:
        return
    if job.phase is JobPhase.STORING and job.incident is None and job.storing and not job.storing.store:
        return  # launched again: who is lost before etcd has the generation is judged once it has
    job.evidence += fresh
    devices.count_deaths(m, job, fresh)
    quarantine.charge_judged(m, fresh)
    verdict = verdicts.judge(job.name, job.evidence, job.seats)
    cause, reason = _strategy(m, job, fresh)
    plan = _plan(m, job, cause, reason)
    _record(m, job, verdict, plan)
    _begin(m, job, verdict, plan)


def _strategy(m: Machine, job: Job, fresh: list[Evidence]) -> tuple[Strategy, str]:
    failure = verdicts.root(fresh).failure
    job.returned = job.returned or job.phase is JobPhase.LEAVING
    dead = job.dead()
    ready = [name for name in spares(job).values() if job.members[name].phase is MemberPhase.READY]
    shrinks = shrinking.possible(m, job) if dead else 0
    situation = strategies.Situation(
        elastic=job.elastic and (job.returned or not job.relaunch),
        behind=job.returned,
        barrier=job.barrier or job.known_step > 0,
        exception=failure.exception,
        repeats=_count(job, verdicts.root(fresh)),
        restarts=job.generation.restarts if job.generation else 0,
        max_restarts=job.spec.max_restarts,
        dead=len(dead),
        nodes_up=all(placing.serves(m, job, member.node) for member in dead),
        shrinks=shrinks,
        layout=shrinking.layout(m, job) if shrinks else "",
        missing=", ".join(shrinking.wanting(m, job)),
        planned=job.resize.strategy if job.resize and failure.cause is Cause.RESIZED else "",
        why=job.resize.reason if job.resize else "",
        spares=len(ready) == len(dead),
        on_fault=job.on_fault,
    )
    strategy, reason = strategies.choose(failure.cause, situation)
    if strategy is Strategy.STOP:
        reason = "\n".join(part for part in (f"{reason}: {failure.message}", failure.traceback) if part)
    return strategy, reason


def _count(job: Job, first: Evidence) -> int:
    """How often this failure was seen. Ranks that fail alike in one generation failed once; a rank that
    does so in a second life failed again."""
    key = verdicts.repeat_key(first.failure, behind=job.returned)
    if first.failure.cause is Cause.NODE_RESTARTED:
        recent = [at for at in job.node_restarts if at > first.heard_at - strategies.HOUR_S]
        job.node_restarts = [*recent, first.heard_at]
        return len(job.node_restarts)
    if first.failure.cause not in strategies.UNCOUNTED:
        seen = job.counted.setdefault((key, job.generation.number if job.generation else 0), [])
        if not seen or first.rank in seen:
            job.failures_seen[key] = job.failures_seen.get(key, 0) + 1
        seen.append(first.rank)
    return job.failures_seen.get(key, 0)


def _plan(m: Machine, job: Job, strategy: Strategy, reason: str) -> Plan:
    drop = tuple(member.name for member in job.dead())
    add: tuple[str, ...] = ()
    if strategy is Strategy.RELAUNCH:
        drop = tuple(seat.member for seat in job.seats)
    elif strategy in (Strategy.SPARE, Strategy.RESPAWN):
        add = tuple(spares(job).values())
    return Plan(job.name, strategy, drop, add, reason)


def _record(m: Machine, job: Job, verdict: Verdict, plan: Plan) -> None:
    first = verdicts.root(job.evidence)
    number = job.generation.number if job.generation else 0
    if job.incident is None:
        job.incidents += 1
        if job.unfinished:
            goes_on = f"incident {job.incidents} goes on with it"
            m.note("incident_overtaken", job.name, f"{unfinished(job)}: {goes_on}")
            job.unfinished = 0
        job.clock = Clock(injured=first.injured_at, heard=first.heard_at, judged=m.now)
        job.incident = Incident(job.incidents, job.name, verdict, plan, number)
        incident_facts.count_in(m, job, None)
    else:
        before = job.incident.verdict.cause
        job.incident = dataclasses.replace(job.incident, verdict=verdict, plan=plan)
        incident_facts.count_in(m, job, before)
    job.clock.stored = 0.0
    job.phases = {}
    m.emit(fx.Judged(verdict, plan, job.incident.id))


def _begin(m: Machine, job: Job, verdict: Verdict, plan: Plan) -> None:
    job.broken_since = None
    job.storing = job.restoring = None
    job.letting_go = (0, "")
    job.stop_by = m.now + m.settings.stop_timeout_s
    reason = verdict.evidence[0] if verdict.evidence else plan.reason
    if plan.strategy is not Strategy.RELAUNCH and not job.returned:
        interrupt(m, job, reason)
    if plan.strategy is Strategy.STOP:
        ending.end(m, job, JobPhase.FAILED, plan.reason)
        return
    job.relaunch = job.relaunch or plan.strategy is Strategy.RELAUNCH
    m.set_phase(job, JobPhase.STOPPING, _words(verdict, plan))
    tell(m, job, {})


def _words(verdict: Verdict, plan: Plan) -> str:
    what = "planned" if verdict.cause is Cause.RESIZED else f"{verdict.scope} failure, {verdict.cause}"
    return f"{what}: {plan.reason}"


def interrupt(m: Machine, job: Job, reason: str, only: list[Member] | None = None) -> None:
    """Tell every node of the generation at once that it is broken; again, only where someone is behind."""
    if job.generation is None or not job.generation.store:
        return
    number, name = job.generation.number, job.name
    if number > job.interrupted[0] and not resizing.gentle(m, job):
        job.interrupted = (number, m.now)
    gentle = resizing.gentle(m, job)
    keep = gentle and job.resize is not None and job.resize.keep
    nodes = _everywhere(job, job.generation) if only is None else [member.node for member in only]
    told = m.order_each(
        job,
        ("halt" if gentle else "interrupt", str(number)),
        dict.fromkeys(nodes),
        lambda node: fx.Interrupt(node, name, number, reason, gentle, keep),
    )
    everybody = told and only is None and not gentle
    job.halted = (m.now, number, m.streams) if everybody else None


def _halted_until(m: Machine, job: Job) -> float:
    """Until when (s) nobody has to be told again to stop, and somebody has to stop; 0 when that is not so."""
    if job.halted is None or job.generation is None or resizing.gentle(m, job):
        return 0.0
    at, rolls = job.halted[0], job.seating.rolls
    until = at + m.settings.retry_s
    if m.now >= min(until, job.stop_by) or job.halted[1:] != (job.generation.number, m.streams):
        return 0.0
    return until if any(rank not in rolls.dead for rank in rolls.inside) else 0.0


def _everywhere(job: Job, generation: Generation) -> tuple[str, ...]:
    """The nodes of a generation, and of the seats that there are now."""
    if generation.seats == job.seats:
        return job.seat_nodes()
    return (*(seat.node for seat in generation.seats), *job.seat_nodes())


def unfinished(job: Job) -> str:
    """Names the incident that a former leader left open: what it knew of it went with it."""
    return f"incident {job.unfinished}, whose leader ended before it was over"


def tell(m: Machine, job: Job, phases_s: dict[str, float], **changes: object) -> None:
    """Say how far the open incident is. `detect`: injury until the core heard; `decide`: heard until
    judged; the others are added as they are known (see `forming.close`)."""
    if job.incident is None:
        return
    known = {"detect": job.clock.heard - job.clock.injured, "decide": job.clock.judged - job.clock.heard}
    phases = tuple((name, round(spent, 6)) for name, spent in (known | phases_s).items())
    job.incident = dataclasses.replace(job.incident, phases_s=phases, **changes)  # type: ignore[arg-type]
    m.emit(fx.IncidentChanged(job.incident))


def spares(job: Job) -> dict[int, str]:
    """For each dead seat the best living spare beside it: READY first, then the farthest on its way."""
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


def stopping(m: Machine, job: Job) -> None:
    """Bring every seat to the barrier: survivors stop, dead seats are filled, stragglers are killed."""
    if job.relaunch:
        _relaunching(m, job)
        return
    if resizing.holds(m, job):
        return
    _fill_seats(m, job)
    shrinking.tend(m, job)
    placing.order_launches(m, job)
    if until := _halted_until(m, job):
        m.wake(job, min(until, job.stop_by))
        return
    rolls = job.seating.rolls
    behind = job.seating.at(rank for rank in rolls.inside if rank not in rolls.dead)
    unsure = _unsure(m, job)
    if behind or unsure:
        interrupt(m, job, job.reason, behind + unsure)
        kill_stuck(m, job, behind)
        return
    away = sorted(dict.fromkeys(member.node for member in job.dead()))
    if away:
        m.set_phase(job, JobPhase.PARKED, _waits(m, job, away))
    elif job.phase is JobPhase.PARKED:
        m.set_phase(job, JobPhase.STOPPING, "every seat has a node again")
    if away or len(rolls.ready) < len(job.seats):
        return
    if job.pause and not job.relaunch:
        pausing.rest(m, job)
    else:
        m.set_phase(job, JobPhase.LOADING, "every rank is at the barrier: the nearest state is chosen")


def _unsure(m: Machine, job: Job) -> list[Member]:
    """Who is READY and may have to leave the barrier again."""
    rolls, nodes = job.seating.rolls, job.seat_nodes()
    away = frozenset(node for node in nodes if not m.up(node))
    seated = job.seated()
    left = [rank for rank in rolls.ready if rank not in rolls.entered or (away and seated[rank].node in away)]
    return [mb for mb in job.seating.at(left) if not mb.dead and not at_barrier(m, job, mb)]


def all_at_barrier(m: Machine, job: Job) -> bool:
    """Whether every seat has a member who is there, and sure to stay."""
    rolls = job.seating.rolls
    return not rolls.dead and len(rolls.ready) == len(job.seats) and not _unsure(m, job)


def at_barrier(m: Machine, job: Job, member: Member) -> bool:
    """READY, and sure to stay so: its node speaks, and it has not been told of the generation that broke,
    or it has left it, or its agent has spoken of it since it must have heard of the end."""
    if member.failure is not None or member.phase is not MemberPhase.READY or not m.up(member.node):
        return False
    broken = job.generation
    if broken is None or not broken.store or member.generation >= broken.number:
        return True
    if not job.sat_in(broken, member.name):
        return True
    number, since = job.interrupted
    return number >= broken.number and member.seen_at >= since + m.settings.retry_s


def kill_stuck(m: Machine, job: Job, behind: list[Member]) -> None:
    """Whoever has not stopped in time is dead."""
    if m.now < job.stop_by:
        m.wake(job, job.stop_by)
        return
    for member in behind:
        if m.now < member.stop_by:
            m.wake(job, member.stop_by)
        elif m.up(member.node):
            message = f"did not stop within {m.settings.stop_timeout_s:.0f} s"
            members.bury(m, job, member, Failure(Cause.STUCK, message))
            members.kill(m, job, member, message)


def _fill_seats(m: Machine, job: Job) -> None:
    dead = job.dead()
    picks = spares(job)
    moves = _moves(m, job)
    for leaver in dead:
        seat = job.seating.seat(leaver.rank)
        node = moves.get(seat.node, seat.node)
        place = _place(m, job, seat, node)
        if not placing.serves(m, job, node) or place is None:
            continue
        name = picks.get(seat.rank, "") if node == seat.node else ""
        _seat(m, job, Placement(seat.rank, name or m.new_member(job.name), node, place))


def _seat(m: Machine, job: Job, seat: Placement) -> None:
    member = job.enlist(Member(seat.member, job.name, seat.node, Role.RANK))
    member.role, member.rank = Role.RANK, seat.rank
    if job.generation is not None and member.phase in ASKED:
        job.sent.drop(("launch", member.node, member.name))
        member.launch = placing.launch(job, seat, job.generation)
    job.seating.put(seat, member)
    job.changed(member)


def _moves(m: Machine, job: Job) -> dict[str, str]:
    """For each lost node with dead seats, the idle node that takes them all."""
    lost = shrinking.wanting(m, job)
    if not lost:
        return {}
    free = [] if m.paused else sorted(placing.others(m, job), key=lambda room: (room.last, room.node))
    free = [room for room in free if room.idle]
    moves: dict[str, str] = {}
    for name in lost:
        seats = job.seating.on(name)
        fit = next((room for room in free if room.takes(len(seats))), None)
        if fit is not None and all(job.members[seat.member].dead for seat in seats):
            free.remove(fit)
            moves[name] = fit.node
            m.note("seats_moved", job.name, f"ranks of {name} go to {moves[name]}")
    return moves


def _place(m: Machine, job: Job, seat: Placement, node: str) -> int | None:
    """The local rank of a seat on this node: its own, or, where that takes no ranks, a free one."""
    found = m.nodes.get(node)
    taken = [s.local_rank for s in job.seating.on(node) if s is not seat]
    free = [p for p in devices.places(found) if p not in taken] if found is not None else []
    if seat.local_rank in free:
        return seat.local_rank
    return free[0] if free else None


def _waits(m: Machine, job: Job, away: list[str]) -> str:
    reason = f"waits for {', '.join(away)}, or another node with room"
    lacking = shrinking.lacking(m, job) if job.spec.nnodes_min < job.spec.nnodes_max else ""
    return f"{reason}; {lacking}" if lacking else reason


def _relaunching(m: Machine, job: Job) -> None:
    """Every rank is started again: the rest is killed first, so that none holds a device or a port."""
    left = [mb for mb in job.seated() if mb.alive and mb.phase is not MemberPhase.RAISED and m.up(mb.node)]
    for member in left:
        member.failure = member.failure or Failure(Cause.EXITED, "its job is started again")
        job.changed(member)
        members.kill(m, job, member, member.failure.message)
    if left:
        return
    seats = job.generation.seats if job.generation else job.seats
    wanted = len(dict.fromkeys(place.node for place in (job.resize.spots if job.resize else seats)))
    least = job.spec.nnodes_min
    why = shrinking.uncut(job, least) if job.returned and least < wanted else ""
    nodes = placing.gather(m, job, wanted if why else least, max(wanted, least), why)
    if nodes is not None:
        planned = job.incident is not None and job.incident.verdict.cause is Cause.RESIZED
        restarts = (job.generation.restarts if job.generation else 0) + (0 if planned else 1)
        job.resize, job.resize_at = None, m.now + m.settings.resize_every_s
        for member in job.seated():
            if not member.dead:
                member.failure = Failure(Cause.EXITED, "its job is started again")
                job.changed(member)
        placing.launch_generation(m, job, nodes, job.reason, restarts)
