"""A job before its first group: nodes are found, a generation is stored, its members are launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import adopting, releasing
from controlplane.core.failures import devices, eligibility
from controlplane.core.lifecycle import ending
from controlplane.core.placement import formation, launches, replicas
from controlplane.core.records import effects as fx
from controlplane.core.records.differing import differences
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Generation, JobPhase, MemberPhase, Resume, Role, Tier
from controlplane.core.recovery import incident_facts, incidents
from controlplane.core.restore import state_sources
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import JobSpec, Placement
    from controlplane.core.state.machine import Machine, Node

REFUSED = "submission_refused"
"""The kind of the Note that says why a submission is not taken."""


def submitted(m: Machine, event: ev.JobSubmitted) -> None:
    """A user submitted a job: a new one, one that goes on, or a failed one taken up again. Of one that is not
    over another submission is refused, and changes nothing."""
    spec = event.spec
    job = m.jobs.get(spec.job)
    if job is not None and (job.phase not in (JobPhase.FAILED, JobPhase.STOPPED) or job.ending is not None):
        other = differences(job.spec, spec)
        if other and not job.ended:
            m.note(REFUSED, spec.job, f"a job of this name is {job.phase.value} with other settings: {other}")
            return
        words = "is finished already" if job.ended else "goes on as it is"
        changed = f"; the new submission's settings are not taken: {other}" if other else ""
        m.note("resubmitted", spec.job, f"the job {words}{changed}")
        return
    left = [row for row in m.unread if row.whole and row.job == spec.job]
    if left:
        words = f"etcd holds a job of this name that cannot be read: {left[0].key}: {left[0].reason}"
        m.note(REFUSED, spec.job, words)
        return
    job = _again(m, job, spec) if job else Job(spec)
    m.jobs[spec.job] = job
    adopting.claim(m, job)
    job.reason = "submitted"
    effect = fx.Store(0, 0, job=spec.job, spec=spec, state=job.state())
    m.store(f"job/{spec.job}", effect)
    m.emit(fx.JobChanged(job.state()))
    wrong = formation.impossible(spec)
    if wrong:
        ending.end(m, job, JobPhase.FAILED, wrong)
    m.touch(job)


def _again(m: Machine, old: Job, spec: JobSpec) -> Job:
    was = "had failed" if old.phase is JobPhase.FAILED else "was stopped"
    m.note("taken_up_again", spec.job, f"it {was}: {old.reason.splitlines()[0] if old.reason else ''}")
    job = Job(spec, known=old.known, number=old.number, formed=old.formed)
    if old.generation is not None:
        job.turn(old.generation)
    job.incidents, job.planned, job.known_step = old.incidents, old.planned, old.known_step
    job.faults, job.skips = old.faults, old.skips
    job.shards, job.lines, job.cut_at, job.cut_words = old.shards, old.lines, old.cut_at, old.cut_words
    for member in old.members.values():
        job.enlist(member)
    job.checkpoints, job.savings = old.checkpoints, old.savings
    job.begun, job.collecting, job.uncollected = old.begun, old.collecting, old.uncollected
    for member in job.members.values():
        member.role, member.rank = Role.SPARE, -1
        job.changed(member)
    recall(m, job)
    return job


def recall(m: Machine, job: Job) -> None:
    """The ranks of a job's former life on nodes that have not spoken to this leader: they may train still."""
    for seat in job.generation.seats if job.generation else ():
        if seat.node in m.nodes and m.nodes[seat.node].state == "expected":
            job.enlist(Member(seat.member, job.name, seat.node, Role.SPARE))


def pending(m: Machine, job: Job) -> None:
    """Place the job once enough nodes are there."""
    if _remnants(m, job):
        return
    nodes = gather(m, job, formation.least(job.spec), job.spec.nnodes_max)
    if nodes is not None:
        reason = "the first launch" if job.generation is None else "launched again after its end"
        launch_generation(m, job, nodes, reason, restarts=0)


def _remnants(m: Machine, job: Job) -> bool:
    """Processes of the job's former life end first, those too of which no word has come yet."""
    there = [member for member in job.members.values() if member.alive or _unheard(member)]
    left = [member for member in there if not _is_lost(m, member.node)]
    for member in left:
        ending.order_complete(m, job, member.node, ok=False, reason="the job is started again")
    if left:
        m.set_phase(job, JobPhase.PENDING, f"waits for {len(left)} processes of its former life to end")
    return bool(left)


def _unheard(member: Member) -> bool:
    """Launched by a former leader, on a node that has not spoken to this one: it may well train."""
    return member.status is None and member.launch is None and not member.dead


def _is_lost(m: Machine, node: str) -> bool:
    """Given up: what it left is killed if it ever returns."""
    return node in m.nodes and m.nodes[node].state == "lost"


def rooms(m: Machine, job: Job) -> list[formation.Room]:
    """Every connected node: whether another live job sits on it, or is about to, and what else bars it."""
    return _rooms(m, job, frozenset())


def others(m: Machine, job: Job) -> list[formation.Room]:
    """The rooms in which the job has no seat."""
    return _rooms(m, job, frozenset(job.seat_nodes()))


def _rooms(m: Machine, job: Job, but: frozenset[str]) -> list[formation.Room]:
    nodes = [node for node in m.nodes.values() if node.name not in but and node.up]
    if not nodes:
        return []
    taken, version = _of_others(m, job), _version(m, job)
    return [_room(m, job, node, node.name not in taken, version) for node in nodes]


def _room(m: Machine, job: Job, node: Node, idle: bool, version: str) -> formation.Room:
    other = not node.takes(job.name)
    return formation.Room(
        node.name,
        node.slots,
        idle,
        f"it takes ranks of {', '.join(node.jobs)} only" if other else barred(m, node, version),
        devices.places(node),
        eligibility.last_choice(m, node),
        node.up_since,
    )


def barred(m: Machine, node: Node, version: str = "") -> str:
    """Why a connected node takes no new seats; "" when it does."""
    if node.drain is not None:
        return "drained" if node.drain.done else "is being drained"
    if node.cordoned:
        return f"cordoned: {node.cordoned}"
    if version and node.version and node.version != version:
        return f"its agent is holdfast {node.version}, the job's are {version}: install the same"
    return eligibility.barred(m, node) or devices.ailing(node)


def _version(m: Machine, job: Job) -> str:
    """The software version of a job's nodes: those it sits on, else the commonest one."""
    sat_on = [m.nodes[name] for name in job.seat_nodes() if name in m.nodes and m.nodes[name].version]
    found: dict[str, int] = {}
    for node in sat_on or m.nodes.values():
        if node.version and (node.up or sat_on):
            found[node.version] = found.get(node.version, 0) + 1
    return max(found, key=lambda version: (found[version], version), default="")


def _of_others(m: Machine, job: Job) -> dict[str, None]:
    taken: dict[str, None] = {}
    for other in m.jobs.values():
        if other is job or other.ended:
            continue
        taken |= dict.fromkeys(seat.node for seat in other.seats)
        if other.resize is not None:
            taken |= dict.fromkeys(spot.node for spot in other.resize.spots)
    return taken


def taken(m: Machine, job: Job, name: str) -> bool:
    """Whether another live job sits on this node, or is about to."""
    return name in _of_others(m, job)


def serves(m: Machine, job: Job, name: str, ranks: int = 1) -> bool:
    """Whether so many ranks of a job may be started on a node that it sits on already."""
    node = m.nodes.get(name)
    if node is None or not eligibility.takes(m, job, name) or len(devices.places(node)) < ranks:
        return False
    return node.drain is None or m.now < node.drain.by


def lacking_without(m: Machine, job: Job, name: str) -> str:
    """Why a job cannot go on without this node; "" when it can."""
    left = [node for node in job.seat_nodes() if node != name and m.up(node)]
    spare = formation.fitting(job.spec, [room for room in others(m, job) if room.node != name])
    if spare and len(left) + 1 >= formation.least(job.spec):
        return ""
    if not job.elastic:
        return f"would lose its ranks on {name}, and its script does not use the SDK: stop it instead"
    if formation.usable(job.spec, len(left)):
        return ""
    return (
        f"would have {len(left)} of at least {formation.least(job.spec)} nodes: "
        "add a node, or submit it with a smaller minimum (--nnodes MIN:MAX)"
    )


def gather(m: Machine, job: Job, least: int, most: int, why: str = "") -> list[str] | None:
    """The nodes to place on now: at once with `most`, with `least` after a grace; None: wait. `why`: the
    reason that fewer than `least` will not do."""
    if m.paused:
        m.set_phase(job, job.phase, f"nothing new is started while the cluster is critical: {m.paused}")
        return None
    found = rooms(m, job)
    fit = formation.fitting(job.spec, found)
    most = formation.usable(job.spec, most) or most
    least = max(least, formation.least(job.spec))
    if len(fit) < least:
        job.gathered_at = None
        phase = JobPhase.PENDING if job.phase is JobPhase.PENDING else JobPhase.PARKED
        short = formation.shortage(job.spec, found, least)
        m.set_phase(job, phase, f"{short}; {why}" if why else short)
        return None
    if job.gathered_at is None:
        job.gathered_at = m.now
    if len(fit) < most and m.now < job.gathered_at + m.settings.join_grace_s:
        m.wake(job, job.gathered_at + m.settings.join_grace_s)
        m.set_phase(job, job.phase, f"{len(fit)} nodes are there; waits a little for up to {most}")
        return None
    job.gathered_at = None
    return fit[: formation.usable(job.spec, min(len(fit), most)) or most]


def launch_generation(m: Machine, job: Job, nodes: list[str], reason: str, restarts: int) -> None:
    """Seat new members on `nodes`, store the generation, and launch them once etcd holds it."""
    nodes = replicas.arrange(nodes, job.spec.replica_nodes, domains(m, nodes))
    names = _names(m, job, nodes)
    seats = formation.layout(job.spec, nodes, names, rooms(m, job))
    job.number += 1
    first = m.nodes[nodes[0]]
    generation = Generation(
        job=job.name,
        number=job.number,
        term=m.term,
        seats=seats,
        store="",
        master=f"{first.address}:{first.port}",
        resume=Resume(Tier.FRESH, 0, 0, reason="every rank is launched; none has spoken yet"),
        reason=reason,
        restarts=restarts,
        cut_at=state_sources.cut_at(job, len(seats), job.number),
    )
    for seat in seats:
        member = job.enlist(Member(seat.member, job.name, seat.node, Role.RANK))
        member.role, member.rank = Role.RANK, seat.rank
        member.launch = launch(job, seat, generation)
    job.sit(seats)
    job.storing = generation
    m.set_phase(job, JobPhase.STORING, f"generation {generation.number} is on its way into etcd")
    effect = fx.Store(0, 0, job=job.name, state=job.state(JobPhase.LAUNCHING, reason), generation=generation)
    m.store(f"job/{job.name}", effect, lambda: _stored(m, job, generation))


def domains(m: Machine, nodes: Iterable[str]) -> dict[str, str]:
    """What fails together with each of these nodes."""
    return {name: m.nodes[name].domain or name for name in nodes}


def _names(m: Machine, job: Job, nodes: list[str]) -> list[str]:
    """Warm interpreters that wait on a node become ranks first: they have imported torch already."""
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
        names += [m.new_member(job.name) for _ in range(job.spec.nproc_per_node - len(warm))]
    return names


def launch(job: Job, seat: Placement, generation: Generation) -> fx.Launch:
    """The order that makes the member of a seat."""
    return fx.Launch(
        seat.node,
        seat.member,
        job.spec,
        Role.RANK,
        rank=seat.rank,
        local_rank=seat.local_rank,
        generation=generation,
    )


def _stored(m: Machine, job: Job, generation: Generation) -> None:
    job.known[generation.number] = None
    if job.storing is not generation:
        return
    if job.generation is not None and job.generation.world_size != generation.world_size:
        state_sources.relabel(job, generation)
    job.cut_at = generation.cut_at
    incident_facts.came(job, generation.seats)
    job.turn(generation)
    job.storing, job.relaunch, job.returned, job.onward = None, False, False, False
    job.clock.stored = job.launched_at = m.now
    releasing.begin(job)
    for member in job.seated():
        job.sent.drop(("launch", member.node, member.name))
    for member in job.dead():
        if member.failure is not None:  # it was lost before there was a generation to judge it by
            job.fresh.append(Evidence(m.now, member.failure, member.name, member.node, member.rank))
    incidents.tell(m, job, {"fence": m.now - job.clock.judged}, generation_after=generation.number)
    m.set_phase(job, JobPhase.LAUNCHING, generation.reason)
    m.touch(job)


def order_launches(m: Machine, job: Job) -> bool:
    """Repeat what was launched and is not seen to run. Returns whether every seat runs its script."""
    waits = job.seating.at(job.seating.rolls.asked)
    for member in waits:
        if launches.orphaned(member) and job.generation is not None:
            member.launch = launch(job, job.seating.seat(member.rank), job.generation)
            job.changed(member)
        launches.watch(m, job, member)
        if member.launch is not None:
            m.order(job, ("launch", member.node, member.name), member.launch)
    return not waits


def launching(m: Machine, job: Job) -> None:
    """Members start. An elastic job forms when all are at the barrier; a plain one simply runs."""
    if not order_launches(m, job):
        return
    if not job.elastic:
        m.set_phase(job, JobPhase.RUNNING, "every rank runs its script; none has used the SDK so far")
        return
    if len(job.seating.rolls.ready) == len(job.seats):
        m.set_phase(job, JobPhase.LOADING, "every rank is at the barrier: the nearest state is chosen")
