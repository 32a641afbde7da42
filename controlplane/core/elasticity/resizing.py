"""Carry out a planned change of a job's places without losing a step: grow, leave or move at a step boundary.

`growing` says what should change. Then three stages follow. WARM: new members are launched and brought to the
barrier while the others train on. HALT: an incident with the cause RESIZED opens, and every rank is asked to
stop at the end of its step. No rank can complete a step that another one does not begin, so all of them stop
at the same boundary; a rank that a stopped peer blocks is interrupted within its step soon after. SAVE: where
each rank holds a shard of its own, or the ranks that stay lack some shard, the state is made durable first.
Then the seats change, and the incident goes on like any other. A failure in between takes over, and the
change is planned anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing, saving
from controlplane.core.elasticity import growing, spares
from controlplane.core.placement import launches
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import (
    NO_RANK,
    NO_STEP,
    Cause,
    Failure,
    JobPhase,
    MemberPhase,
    Placement,
    Role,
    Strategy,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.places import Spot
from controlplane.core.records.words import GONE, IN_GENERATION
from controlplane.core.recovery import barrier
from controlplane.core.restore import state_sources
from controlplane.core.state.resize import HALT, SAVE, WARM, Resize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


UNSAVED_MAX = 5
"""How many times the wait doubles, at most, after changes in a row whose state could not be made durable."""


def reconcile(m: ClusterState, job: Job) -> None:
    """Plan a change of a training job when there is reason to, and bring its new members to the barrier."""
    if job.phase is not JobPhase.RUNNING or not calm(job):
        _tend_plain(m, job)
        return
    if job.places.resize is None:
        job.places.resize = growing.plan(m, job)
    if job.places.resize is not None:
        _warm(m, job, job.places.resize)


def _tend_plain(m: ClusterState, job: Job) -> None:
    """Grow a plain script's job by starting it again, as torchrun does: it cannot stop at a step boundary.

    This loses what the script has not saved, so it is done only when every rank has run for a while."""
    if (
        job.elastic
        or job.phase is not JobPhase.RUNNING
        or job.recovery.incident is not None
        or job.recovery.unjudged
    ):
        return
    if m.now < job.generations.launched_at + m.settings.plain_after_s or job.generations.storing is not None:
        return
    if any(mb.dead or mb.phase is not MemberPhase.STARTING for mb in job.seated()):
        return
    job.places.resize = growing.grow(m, job)
    if job.places.resize is not None:
        _go(m, job, job.places.resize)


def calm(job: Job) -> bool:
    """Whether an SDK job trains in a formed generation with every rank, and nothing is wrong or under way."""
    if (
        job.recovery.incident is not None
        or job.recovery.unjudged
        or not job.elastic
        or job.generation is None
    ):
        return False
    if not job.generation.store or job.generations.storing is not None:
        return False
    return not job.seating.rolls.uncalm


def _warm(m: ClusterState, job: Job, resize: Resize) -> None:
    """Launch the new members and wait until they are READY; drop the plan when one of them, or its node, is
    lost."""
    taken = {(seat.node, seat.local_rank) for seat in job.seats}
    coming = [spot for spot in resize.spots if (spot.node, spot.local_rank) not in taken]
    gone = [spot.node for spot in coming if not m.up(spot.node)]
    dead = [name for name in resize.fresh.values() if _is_gone(job, name)]
    if gone or dead:
        _drop(m, job, f"{gone[0]} went away" if gone else f"{dead[0]} ended before it was ready")
        return
    for spot in coming:
        if spot not in resize.fresh:
            resize.fresh[spot] = _newcomer(m, job, resize, spot)
    for spot, name in resize.fresh.items():
        spares.order(m, job, job.members[name], spot.local_rank)
        launches.watch(m, job, job.members[name])
    if all(job.members[name].phase is MemberPhase.READY for name in resize.fresh.values()):
        _go(m, job, resize)


def _is_gone(job: Job, name: str) -> bool:
    member = job.members.get(name)
    return member is None or member.dead or member.phase in GONE


def _newcomer(m: ClusterState, job: Job, resize: Resize, spot: Spot) -> str:
    """Return the name of a member for this place: a spare that lives on the node already, or a new one."""
    used = set(resize.fresh.values())
    for member in job.by_node.get(spot.node, {}).values():
        fit = member.role is Role.SPARE and not member.dead and member.phase not in GONE
        if fit and member.name not in used and member.phase not in IN_GENERATION:
            return member.name
    return spares.new(m, job, spot.node, spot.local_rank).name


def _go(m: ClusterState, job: Job, resize: Resize) -> None:
    """Begin to halt the job at a step boundary, by evidence of the cause RESIZED: it opens an incident.

    `keep` (the state is made durable before the seats change) is set where each rank holds a shard of its
    own, or the ranks that stay lack some shard."""
    resize.stage, resize.hard_at = HALT, m.now + m.settings.stop_timeout_s
    state_sources.recall(m, job)
    staying = {(spot.node, spot.local_rank) for spot in resize.spots}
    held = [seat.rank for seat in job.seats if (seat.node, seat.local_rank) in staying]
    own_shards = state_sources.sharded(job) and not state_sources.repeats(job)
    resize.keep = own_shards or not state_sources.whole(m, job, held)
    failure = Failure(Cause.RESIZED, resize.reason, step=job.restore.known_step)
    job.recovery.incidents_before += 1  # no failure: it must not shorten the mean time between failures
    job.recovery.unjudged.append(Evidence(m.now, failure))
    m.touch(job)


def stay(m: ClusterState, job: Job, reason: str) -> None:
    """Halt the job at a step boundary with its places as they are (a pause). A change under way is dropped.

    No rank can donate another rank's shard. So with state in shards each rank takes a snapshot at the
    boundary, and a node that is lost during the pause costs no step."""
    if job.places.resize is not None:
        _drop(m, job, "the job is to be paused")
    spots = tuple(Spot(seat.node, seat.local_rank) for seat in job.seats)
    job.places.resize = Resize(Strategy.PAUSE, reason, spots, m.now)
    _go(m, job, job.places.resize)


def _drop(m: ClusterState, job: Job, reason: str) -> None:
    """Drop the change under way, with a note; it may be planned anew after `resize_every_s`."""
    assert job.places.resize is not None
    m.note(NoteKind.RESIZE_DROPPED, job.name, f"{job.places.resize.reason}: {reason}")
    job.places.resize, job.places.resize_at = None, m.now + m.settings.resize_every_s
    m.wake(job, job.places.resize_at)


def overtaken(job: Job, fresh: Sequence[Evidence]) -> None:
    """Drop the change under way when something failed: recovery comes first, the change is planned anew."""
    if job.places.resize is not None and any(each.failure.cause is not Cause.RESIZED for each in fresh):
        job.places.resize = None


def holds(m: ClusterState, job: Job) -> bool:
    """Drive a change while the job is stopped for it; True while there is something to wait for.

    When all ranks are at the barrier and the state is durable where needed, the seats change. When it could
    not be made durable, or a new member is gone, the seats stay as they are."""
    resize = job.places.resize
    if resize is None or resize.stage == WARM:
        return False
    if resize.stage == HALT and _halting(m, job, resize):
        return True
    if resize.stage == SAVE and _saving(m, job, resize):
        return True
    job.places.resize = None
    if resize.keep and not resize.durable:
        _unsaved(m, job, resize)
        return False
    if any(_is_gone(job, name) or not m.up(job.members[name].node) for name in resize.fresh.values()):
        m.note(NoteKind.RESIZE_DROPPED, job.name, f"{resize.reason}: who stood ready is gone")
        job.places.resize_at = m.now + m.settings.resize_every_s
        return False
    reseat(m, job, _seats(job, resize))
    job.places.resize_at = m.now + m.settings.resize_every_s
    job.places.unsaved = 0
    return False


def _seats(job: Job, resize: Resize) -> list[Placement]:
    """Return the new seats: members that stay keep their places, new members take the others."""
    old = {(seat.node, seat.local_rank): seat for seat in job.seats}
    seats = []
    for rank, spot in enumerate(resize.spots):
        seat = old.get((spot.node, spot.local_rank))
        if seat is None or seat.rank != rank:
            name = seat.member if seat is not None else resize.fresh[spot]
            seat = Placement(rank, name, spot.node, spot.local_rank)
        seats.append(seat)
    return seats


def _unsaved(m: ClusterState, job: Job, resize: Resize) -> None:
    """Keep the seats because the state could not be made durable: to change them would lose steps, perhaps
    the whole state. Each failed try in a row doubles the wait before the next, since each halts the job."""
    m.note(NoteKind.RESIZE_DROPPED, job.name, f"{resize.reason}: the state could not be made durable before")
    wait_s = m.settings.resize_every_s * 2.0 ** min(job.places.unsaved, UNSAVED_MAX)
    job.places.unsaved += 1
    job.places.resize_at = job.places.leave_at = m.now + wait_s


def _halting(m: ClusterState, job: Job, resize: Resize) -> bool:
    """Wait until every rank is at the barrier; True while waiting. Ranks that are not there `gentle_s` after
    the first one are interrupted within their step, and killed after the stop timeout."""
    seated = job.seated()
    behind = job.seating.at(job.seating.rolls.inside)
    if not resize.met and len(behind) < len(seated):
        resize.met = True
        resize.hard_at = min(resize.hard_at, m.now + m.settings.gentle_s)
    job.recovery.stop_by = resize.hard_at + m.settings.stop_timeout_s
    if not behind:
        if not barrier.all_at_barrier(m, job):
            m.wake(job, m.now + m.settings.retry_s)
            return True
        resize.stage, resize.save_by = SAVE, m.now + m.settings.final_checkpoint_timeout_s
        return False
    barrier.interrupt(m, job, resize.reason, behind)
    if m.now < resize.hard_at:
        m.wake(job, resize.hard_at)
    else:
        barrier.kill_stuck(m, job, behind)
    return True


def _saving(m: ClusterState, job: Job, resize: Resize) -> bool:
    """Make the state at the boundary durable where `keep` asks for it; True while that is under way.

    It is durable when a checkpoint of this step is published, or all shards are in the memory of nodes that
    stay and are not cut anew. Given up when the checkpoint is bad or `save_by` has passed."""
    steps = {mb.status.held_step if mb.status else NO_STEP for mb in job.seated()}
    if not resize.keep or len(steps) != 1 or job.generation is None:
        return False
    step = steps.pop()
    name = f"{step}-{job.generation.number}"
    record = job.checkpoints.records.get(name)
    resize.durable = step <= 0 or (record is not None and record.published and not record.bad)
    resize.durable = resize.durable or _in_reach(m, job, resize, step)
    if resize.durable or (record is not None and record.bad):
        return False
    if m.now >= resize.save_by:
        m.note(NoteKind.RESIZE_UNSAVED, job.name, f"step {step} was not durable in time: its ranks stay")
        return False
    m.wake(job, min(resize.save_by, m.now + m.settings.retry_s))
    if name in job.checkpoints.savings:
        return True
    if m.now < resize.again_at:
        m.wake(job, resize.again_at)
        return True
    releasing.from_statuses(job)
    releasing.reconcile(m, job)
    if job.spec.storage and releasing.held_by_all(job, step) and not saving.blocked(job):
        saving.begin(m, job, step)
        resize.again_at = m.now + m.settings.long_retry_s
    return True


def _in_reach(m: ClusterState, job: Job, resize: Resize, step: int) -> bool:
    """Whether every shard of this released step is in the memory of nodes that stay, and none is cut anew."""
    if state_sources.torn(job, len({spot.node for spot in resize.spots})) or job.snapshots.released < step:
        return False
    staying = {spot.node for spot in resize.spots}
    kept = {
        copy.member
        for node in m.nodes.values()
        if node.up and node.drain is None
        for copy in node.copies_of(job.name)
        if copy.step == step
    }
    return state_sources.whole(m, job, [s.rank for s in job.seats if s.node in staying or s.member in kept])


def reseat(m: ClusterState, job: Job, seats: list[Placement]) -> None:
    """Give the job these seats from now on. Members without a seat become spares, unless they are dead."""
    staying = {seat.member for seat in seats}
    for seat in job.seats:
        if seat.member not in staying:
            leaver = job.members[seat.member]
            leaver.rank, leaver.role = NO_RANK, Role.SPARE
    job.snapshots.held = {}
    for seat in seats:
        member = job.members[seat.member]
        member.rank, member.role = seat.rank, Role.RANK
    job.sit(seats)
    job.reread()
    job.replicas.replan = True
    m.touch_all()  # another job may wait for a node that this one leaves
