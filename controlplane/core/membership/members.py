"""Record what agents report of members, and turn deaths into evidence.

Reports and heartbeats carry whole statuses, in any order and more than once. Only the newest of a member
counts (`seen_seq`); what follows is decided by driving its job (`touch`), except where `fast_path` shows
that nothing does."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import voiding
from controlplane.core.failures import deaths
from controlplane.core.membership import fast_path, plausible
from controlplane.core.records import effects as fx
from controlplane.core.records.model import (
    NO_RANK,
    NO_STEP,
    WHOLE_STATE,
    Cause,
    Failure,
    JobPhase,
    MemberPhase,
    Role,
    Source,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import GONE, IN_GENERATION
from controlplane.core.restore import failed_sources, vouching
from controlplane.core.state.member import Member

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


_SHOWS_STEP = (MemberPhase.RUNNING, MemberPhase.RAISED, MemberPhase.EXITED)
"""Phases in which `step` is a step of the training: all steps before it are complete."""

_AT_BARRIER = (MemberPhase.READY, *IN_GENERATION)
"""Phases of a script that is at the barrier, or has left it with others."""

_PHASES = ("form", "restore", "first_step")
"""Phases that a member reports with its first step, in the order of MemberStarted's fields."""


def observe(state: ClusterState, node: str, status: MemberStatus, seq: int) -> None:
    """Take one status of a member, unless a newer one is known.

    A status that cannot be true is refused; a member that is not known is added as a spare."""
    job = state.jobs.get(status.job)
    if job is None:
        state.drop(
            NoteKind.STRAY, status.member, f"node {node} runs it for job {status.job}, which is unknown here"
        )
        state.ask_health()
        return
    member = job.members.get(status.member)
    if reason := plausible.status(state, job, status):
        _impossible(state, job, node, status, reason)
        return
    if member is None:
        member = _adopt(state, job, node, status)
    if member.node != node or seq < member.seen_seq:
        state.drop(
            NoteKind.STALE_REPORT, status.member, f"sequence {seq} from {node} is not the newest word on it"
        )
        return
    old, phase, step = member.status, status.phase, status.step
    if old is None:
        vouching.agent_spoke(job, status.member)
    member.seen_seq, member.seen_at, member.status = seq, state.now, status
    if status.generation > member.entered and phase in IN_GENERATION:
        member.entered = status.generation
    if not member.adopted or member.rank >= 0:
        see_step(state, job, phase, step)
    if member.failure is not None:
        _revive(state, job, member, status)
    if old is not None and old.phase is phase and _same(old, status):
        if member.dead or (
            job.recovery.incident is not None and not fast_path.still(state, job, member, old)
        ):
            state.touch(job)
        return
    _take(state, job, member, old, status)


def see_step(state: ClusterState, job: Job, phase: MemberPhase, step: int) -> None:
    """Record how far the job is, as one of its ranks shows."""
    if step > job.restore.known_step and phase in _SHOWS_STEP:
        job.restore.known_step = step
    if step > job.restore.newest_step:  # noqa: PLR1730 - of every rank in every beat
        job.restore.newest_step = step
    if step >= job.snapshots.lapse_step:
        voiding.lapsed(state, job, step)


def _impossible(state: ClusterState, job: Job, node: str, status: MemberStatus, reason: str) -> None:
    """Refuse a status that cannot belong to this job.

    If such a process exists, it belongs to a former job of this name (etcd was lost), and its node must
    end it."""
    state.drop(plausible.REFUSED, node, f"its status of {status.member:.80} is not followed: {reason}")
    if status.phase is not MemberPhase.EXITED and job.members.get(status.member) is None:
        state.order(job, ("kill", node, status.member), fx.Kill(node, job.name, status.member, reason))


def _take(
    state: ClusterState, job: Job, member: Member, old: MemberStatus | None, status: MemberStatus
) -> None:
    """Act on what is new in a status."""
    plain = not job.elastic
    member.kept = slots(status, status.snapshot_step, status.snapshot_before)
    if old is not None and old.shard and not status.shard:
        member.shard_before = (old.generation, old.shard)
    _learn(job, member, status)
    if old is None or old.phase is not status.phase or _changes_index(old, status):
        job.changed(member)
    else:
        job.unread[member.name] = member
    if plain and job.elastic:
        _left_before(state, job)
    if status.phase in GONE:
        _judge_end(state, job, member, status)
    if member.rank == NO_RANK:
        _judge_seatless(state, job, member, status)
    if job.name not in state.dirty and not fast_path.still(state, job, member, old):
        state.touch(job)


def started(state: ClusterState, event: ev.MemberStarted) -> None:
    """A member has completed its first step in a generation."""
    job = state.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or job.generation is None:
        state.drop(NoteKind.STALE_STARTED, event.member, "no such member here")
        return
    if event.generation != job.generation.number:
        state.drop(
            NoteKind.STALE_STARTED, event.member, f"generation {event.generation} is not the current one"
        )
        return
    member.started = event.generation
    job.seating.changed(member)
    if job.restore.known_step <= job.generation.resume.step:
        job.restore.known_step = job.generation.resume.step + 1
    phases = job.recovery.phases
    for name, spent in zip(_PHASES, (event.form_s, event.restore_s, event.first_step_s), strict=True):
        if spent > phases.get(name, -1.0):
            phases[name] = max(0.0, spent)
    if event.inexact:
        job.recovery.inexact[event.inexact] = None
        if job.recovery.incident is not None:
            inexact = "; ".join(filter(None, (job.recovery.incident.inexact, event.inexact)))
            job.recovery.incident = dataclasses.replace(job.recovery.incident, inexact=inexact)
    if not fast_path.still_started(state, job):
        state.touch(job)


def order_failed(state: ClusterState, event: ev.OrderFailed) -> None:
    """An agent could not carry out an order. For the job, its member has died."""
    job = state.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.dead or member.node != event.node:
        state.drop(NoteKind.STALE_ORDER_FAILED, event.member, event.failure.message)
        return
    if member.status is None:
        member.launch = None
        job.changed(member)
    _spoil(job, member, event.failure)
    deaths.mark_dead(state, job, member, event.failure)


def _spoil(job: Job, member: Member, failure: Failure) -> None:
    """Do not choose a snapshot again that its reader could not restore."""
    resume = job.generation.resume if job.generation and job.phase is JobPhase.FORMING else None
    if resume is None or failure.cause is not Cause.STUCK:
        return
    own = [source for source in resume.sources if source.rank == member.rank]
    if not resume.sources and member.rank == resume.rank:
        own = [Source(WHOLE_STATE, resume.tier, resume.rank, resume.member)]
    for source in own:
        failed_sources.remember(job, source, resume.step, failure.message)


def forget(state: ClusterState, job: Job, member: Member) -> None:
    """Its process and its arena are gone: drop its status, and the member, too, unless it has a seat."""
    member.status, member.kept = None, ()
    job.changed(member)
    if not job.seating.holds(member):
        job.remove(member)
    state.touch(job)


def _adopt(state: ClusterState, job: Job, node: str, status: MemberStatus) -> Member:
    """Add a member that this leader did not launch: a former leader did. It may serve as a spare."""
    member = Member(status.member, job.name, node, Role.SPARE, adopted=True)
    job.add(member)
    if status.phase not in GONE:
        state.note(NoteKind.ADOPTED, member.name, f"node {node} runs it for {job.name}; it may take a seat")
    return member


def _revive(state: ClusterState, job: Job, member: Member, status: MemberStatus) -> None:
    """Take a member as alive again if it was judged dead only because its node was given up: the node is
    back, and no other member has taken the seat."""
    lost = member.failure is not None and member.failure.cause is Cause.NODE_LOST
    if not lost or status.phase in GONE or job.recovery.relaunch or job.ended:
        return
    if job.seating.holds(member):
        member.failure = None
        if status.stalled_s > 0:
            job.recovery.stalled[member.name] = None
        job.changed(member)
        state.note(NoteKind.REVIVED, member.name, f"node {member.node} is back, and it lives")
        state.touch(job)


def _same(old: MemberStatus, new: MemberStatus) -> bool:
    """Whether nothing that matters has changed, apart from the phase."""
    return (
        old.generation == new.generation
        and old.held_step == new.held_step
        and old.held_generation == new.held_generation
        and old.ended_step == new.ended_step
        and old.elastic == new.elastic
        and old.snapshot_step == new.snapshot_step
        and old.snapshot_generation == new.snapshot_generation
        and old.snapshot_before == new.snapshot_before
        and old.offers == new.offers
        and old.former_step == new.former_step
        and old.shard == new.shard
        and old.no_room == new.no_room
        and old.store == new.store
        and old.failure == new.failure
        and (old.elastic or old.activity == new.activity)
        and (old.stalled_s > 0) == (new.stalled_s > 0)
    )


def slots(told: MemberStatus, newest: int, before: int) -> tuple[tuple[int, int], ...]:
    """What the slots of its arena hold: (generation, step), ascending. `newest` and `before`: the steps of
    those that the newest generation wrote."""
    generation = told.snapshot_generation
    if told.former_step <= NO_STEP:
        if before <= NO_STEP:
            return ((generation, newest),) if newest > NO_STEP else ()
        if before < newest:
            return (generation, before), (generation, newest)
    found = ((told.former_generation, told.former_step), (generation, before), (generation, newest))
    return tuple(sorted(slot for slot in found if slot[1] > NO_STEP))


def _changes_index(old: MemberStatus, new: MemberStatus) -> bool:
    """Whether anything has changed that the rank index depends on, apart from the phase."""
    return old.generation != new.generation or old.failure != new.failure or old.no_room != new.no_room


def _learn(job: Job, member: Member, status: MemberStatus) -> None:
    """Record what a status says about the job: whether it uses the SDK, how far it is, what is stalled,
    which shard."""
    phase = status.phase
    if status.stalled_s > 0 and not member.dead:
        job.recovery.stalled[status.member] = None
    elif job.recovery.stalled:
        job.recovery.stalled.pop(status.member, None)
    if not member.adopted or member.rank >= 0:
        job.elastic = job.elastic or status.elastic
        job.barrier = job.barrier or phase in _AT_BARRIER
        if status.held_step > job.restore.known_step or status.snapshot_step > job.restore.known_step:
            job.restore.known_step = max(status.held_step, status.snapshot_step)
    if status.shard and member.rank >= 0 and job.restore.shards.get(member.rank) != status.shard:
        _learn_shard(job, member, status)
    if phase is MemberPhase.FINISHED:
        member.done = True
    elif phase is MemberPhase.READY:
        member.done = False


def _learn_shard(job: Job, member: Member, status: MemberStatus) -> None:
    """Record the shard id that a rank has reported in a generation.

    "all" never replaces another id: a script reports "all", too, as long as it has not built its state."""
    rank, shard_id = member.rank, status.shard
    if job.restore.shards.get(rank) and shard_id == WHOLE_STATE:
        return
    if (
        status.rank == rank
        and job.seating.holds(member)
        and member.generation >= max(1, job.generations.sharding_epoch)
    ):
        job.restore.shards[rank] = shard_id
        job.replicas.replan = True


def _judge_end(state: ClusterState, job: Job, member: Member, status: MemberStatus) -> None:
    """Judge the end of a member's script: it is done, or that is a failure and the member is dead."""
    if member.dead:
        return
    if status.phase is MemberPhase.EXITED and _left_rightly(job, member, status):
        member.done = True
        job.changed(member)
        return
    failure = status.failure or Failure(Cause.EXITED, "it is gone, and its agent does not say why")
    if failure.exit_code == 0:
        failure = dataclasses.replace(failure, message="left early, with exit code 0 before the job's end")
    if job.phase is JobPhase.LEAVING and status.held_step > NO_STEP:  # `step` still shows its last one
        failure = dataclasses.replace(failure, step=status.held_step)
    if member.rank == NO_RANK and job.ended:
        member.failure = failure
        job.changed(member)
        return
    deaths.mark_dead(state, job, member, failure)


def _left_before(state: ClusterState, job: Job) -> None:
    """The script uses the SDK after all: members that exited before that was known have not finished their
    work."""
    for member in job.seated():
        if member.status is not None and member.phase is MemberPhase.EXITED and not member.dead:
            member.done = False
            _judge_end(state, job, member, member.status)


def _judge_seatless(state: ClusterState, job: Job, member: Member, status: MemberStatus) -> None:
    """Mark a member without a seat dead if it still works in a generation: under a former leader it missed
    that the generation ended."""
    if member.dead or job.generation is None or job.ended:
        return
    plain = not job.elastic and status.role is Role.RANK and status.phase is MemberPhase.STARTING
    if plain or status.phase in IN_GENERATION:
        deaths.mark_dead(state, job, member, Failure(Cause.STUCK, "it works in a generation that is over"))


def _left_rightly(job: Job, member: Member, status: MemberStatus) -> bool:
    """Whether its exit is no failure: it was clean, and it had finished, or nothing more is expected of
    it."""
    clean = status.failure is None or status.failure.exit_code == 0
    return clean and (member.done or job.ended or not job.elastic or job.phase is JobPhase.LEAVING)


def kill_zombies(state: ClusterState, job: Job) -> None:
    """Kill members that were judged dead and still live: no rank trains on after its verdict.

    One whose script raised has a while to end by itself, so that its exit code becomes known."""
    if job.ended:
        return
    for member in sorted(job.zombies.values(), key=lambda zombie: zombie.number):
        leaves_by = member.died_at + state.settings.stop_timeout_s
        if member.phase is MemberPhase.RAISED and state.now < leaves_by:
            state.wake(job, leaves_by)
        else:
            deaths.kill(state, job, member, member.failure.message if member.failure else "")
