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
from controlplane.core.records.words import GONE, IN_GENERATION
from controlplane.core.recovery import barrier
from controlplane.core.restore import keepers, sharding
from controlplane.core.state.resize import HALT, SAVE, WARM, Resize, Spot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


UNSAVED_MAX = 5
"""How many times the wait doubles, at most, after changes in a row whose state could not be made durable."""


def reconcile(state: ClusterState, job: Job) -> None:
    """Plan a change of a training job when there is reason to, and bring its new members to the barrier."""
    if job.phase is not JobPhase.RUNNING or not calm(job):
        _tend_plain(state, job)
        return
    if job.changes.resize is None:
        job.changes.resize = growing.plan(state, job)
    if job.changes.resize is not None:
        _warm(state, job, job.changes.resize)


def _tend_plain(state: ClusterState, job: Job) -> None:
    """Grow a plain script's job by starting it again, as torchrun does: it cannot stop at a step boundary.

    This loses what the script has not saved, so it is done only when every rank has run for a while."""
    if (
        job.elastic
        or job.phase is not JobPhase.RUNNING
        or job.recovery.incident is not None
        or job.recovery.unjudged
    ):
        return
    if (
        state.now < job.generations.launched_at + state.settings.plain_after_s
        or job.generations.storing is not None
    ):
        return
    if any(mb.dead or mb.phase is not MemberPhase.STARTING for mb in job.seated()):
        return
    job.changes.resize = growing.grow(state, job)
    if job.changes.resize is not None:
        _go(state, job, job.changes.resize)


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
    return not job.seating.rank_sets.uncalm


def _warm(state: ClusterState, job: Job, resize: Resize) -> None:
    """Launch the new members and wait until they are READY; drop the plan when one of them, or its node, is
    lost."""
    taken = {(seat.node, seat.local_rank) for seat in job.seats}
    coming = [spot for spot in resize.spots if (spot.node, spot.local_rank) not in taken]
    gone = [spot.node for spot in coming if not state.up(spot.node)]
    dead = [name for name in resize.fresh.values() if _is_gone(job, name)]
    if gone or dead:
        _drop(state, job, f"{gone[0]} went away" if gone else f"{dead[0]} ended before it was ready")
        return
    for spot in coming:
        if spot not in resize.fresh:
            resize.fresh[spot] = _newcomer(state, job, resize, spot)
    for spot, name in resize.fresh.items():
        spares.order(state, job, job.members[name], spot.local_rank)
        launches.watch(state, job, job.members[name])
    if all(job.members[name].phase is MemberPhase.READY for name in resize.fresh.values()):
        _go(state, job, resize)


def _is_gone(job: Job, name: str) -> bool:
    member = job.members.get(name)
    return member is None or member.dead or member.phase in GONE


def _newcomer(state: ClusterState, job: Job, resize: Resize, spot: Spot) -> str:
    """Return the name of a member for this place: a spare that lives on the node already, or a new one."""
    used = set(resize.fresh.values())
    for member in job.by_node.get(spot.node, {}).values():
        fit = member.role is Role.SPARE and not member.dead and member.phase not in GONE
        if fit and member.name not in used and member.phase not in IN_GENERATION:
            return member.name
    return spares.new(state, job, spot.node, spot.local_rank).name


def _go(state: ClusterState, job: Job, resize: Resize) -> None:
    """Begin to halt the job at a step boundary, by evidence of the cause RESIZED: it opens an incident.

    `keep` (the state is made durable before the seats change) is set where each rank holds a shard of its
    own, or the ranks that stay lack some shard."""
    resize.stage, resize.hard_at = HALT, state.now + state.settings.stop_timeout_s
    sharding.recall(state, job)
    staying = {(spot.node, spot.local_rank) for spot in resize.spots}
    held = [seat.rank for seat in job.seats if (seat.node, seat.local_rank) in staying]
    own_shards = sharding.sharded(job) and not sharding.repeats(job)
    resize.keep = own_shards or not sharding.whole(state, job, held)
    failure = Failure(Cause.RESIZED, resize.reason, step=job.restore.known_step)
    job.recovery.incidents_before += 1  # no failure: it must not shorten the mean time between failures
    job.recovery.unjudged.append(Evidence(state.now, failure))
    state.touch(job)


def stay(state: ClusterState, job: Job, reason: str) -> None:
    """Halt the job at a step boundary with its places as they are (a pause). A change under way is dropped.

    No rank can donate another rank's shard. So with state in shards each rank takes a snapshot at the
    boundary, and a node that is lost during the pause costs no step."""
    if job.changes.resize is not None:
        _drop(state, job, "the job is to be paused")
    spots = tuple(Spot(seat.node, seat.local_rank) for seat in job.seats)
    job.changes.resize = Resize(Strategy.PAUSE, reason, spots, state.now)
    _go(state, job, job.changes.resize)


def _drop(state: ClusterState, job: Job, reason: str) -> None:
    """Drop the change under way, with a note; it may be planned anew after `resize_every_s`."""
    assert job.changes.resize is not None
    state.note(NoteKind.RESIZE_DROPPED, job.name, f"{job.changes.resize.reason}: {reason}")
    job.changes.resize, job.changes.resize_at = None, state.now + state.settings.resize_every_s
    state.wake(job, job.changes.resize_at)


def overtaken(job: Job, fresh: Sequence[Evidence]) -> None:
    """Drop the change under way when something failed: recovery comes first, the change is planned anew."""
    if job.changes.resize is not None and any(each.failure.cause is not Cause.RESIZED for each in fresh):
        job.changes.resize = None


def holds(state: ClusterState, job: Job) -> bool:
    """Drive a change while the job is stopped for it; True while there is something to wait for.

    When all ranks are at the barrier and the state is durable where needed, the seats change. When it could
    not be made durable, or a new member is gone, the seats stay as they are."""
    resize = job.changes.resize
    if resize is None or resize.stage == WARM:
        return False
    if resize.stage == HALT and _halting(state, job, resize):
        return True
    if resize.stage == SAVE and _saving(state, job, resize):
        return True
    job.changes.resize = None
    if resize.keep and not resize.durable:
        _unsaved(state, job, resize)
        return False
    if any(_is_gone(job, name) or not state.up(job.members[name].node) for name in resize.fresh.values()):
        state.note(NoteKind.RESIZE_DROPPED, job.name, f"{resize.reason}: who stood ready is gone")
        job.changes.resize_at = state.now + state.settings.resize_every_s
        return False
    reseat(state, job, _seats(job, resize))
    job.changes.resize_at = state.now + state.settings.resize_every_s
    job.changes.unsaved = 0
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


def _unsaved(state: ClusterState, job: Job, resize: Resize) -> None:
    """Keep the seats because the state could not be made durable: to change them would lose steps, perhaps
    the whole state. Each failed try in a row doubles the wait before the next, since each halts the job."""
    state.note(
        NoteKind.RESIZE_DROPPED, job.name, f"{resize.reason}: the state could not be made durable before"
    )
    wait_s = state.settings.resize_every_s * 2.0 ** min(job.changes.unsaved, UNSAVED_MAX)
    job.changes.unsaved += 1
    job.changes.resize_at = job.changes.leave_at = state.now + wait_s


def _halting(state: ClusterState, job: Job, resize: Resize) -> bool:
    """Wait until every rank is at the barrier; True while waiting. Ranks that are not there `gentle_s` after
    the first one are interrupted within their step, and killed after the stop timeout."""
    seated = job.seated()
    inside = job.seating.at(job.seating.rank_sets.inside)
    if not resize.met and len(inside) < len(seated):
        resize.met = True
        resize.hard_at = min(resize.hard_at, state.now + state.settings.gentle_s)
    job.recovery.stop_by = resize.hard_at + state.settings.stop_timeout_s
    if not inside:
        if not barrier.all_at_barrier(state, job):
            state.wake(job, state.now + state.settings.retry_s)
            return True
        resize.stage, resize.save_by = SAVE, state.now + state.settings.final_checkpoint_timeout_s
        return False
    barrier.interrupt(state, job, resize.reason, inside)
    if state.now < resize.hard_at:
        state.wake(job, resize.hard_at)
    else:
        barrier.kill_stuck(state, job, inside)
    return True


def _saving(state: ClusterState, job: Job, resize: Resize) -> bool:
    """Make the state at the boundary durable where `keep` asks for it; True while that is under way.

    It is durable when a checkpoint of this step is published, or all shards are in the memory of nodes that
    stay and are not resharded. Given up when the checkpoint is bad or `save_by` has passed."""
    steps = {mb.status.held_step if mb.status else NO_STEP for mb in job.seated()}
    if not resize.keep or len(steps) != 1 or job.generation is None:
        return False
    step = steps.pop()
    name = f"{step}-{job.generation.number}"
    record = job.checkpoints.records.get(name)
    resize.durable = step <= 0 or (record is not None and record.published and not record.bad)
    resize.durable = resize.durable or _in_reach(state, job, resize, step)
    if resize.durable or (record is not None and record.bad):
        return False
    if state.now >= resize.save_by:
        state.note(NoteKind.RESIZE_UNSAVED, job.name, f"step {step} was not durable in time: its ranks stay")
        return False
    state.wake(job, min(resize.save_by, state.now + state.settings.retry_s))
    if name in job.checkpoints.savings:
        return True
    if state.now < resize.again_at:
        state.wake(job, resize.again_at)
        return True
    releasing.from_statuses(job)
    releasing.reconcile(state, job)
    if job.spec.storage and releasing.held_by_all(job, step) and not saving.blocked(job):
        saving.begin(state, job, step)
        resize.again_at = state.now + state.settings.long_retry_s
    return True


def _in_reach(state: ClusterState, job: Job, resize: Resize, step: int) -> bool:
    """Whether every shard of this released step is in memory of nodes that stay, and none is resharded."""
    if (
        sharding.forces_reshard(job, len({spot.node for spot in resize.spots}))
        or job.snapshots.released < step
    ):
        return False
    staying = {spot.node for spot in resize.spots}
    kept = {
        copy.member
        for node in keepers.of(state, job.name)
        if node.up and node.drain is None
        for copy in node.copies_of(job.name)
        if copy.step == step
    }
    return sharding.whole(state, job, [s.rank for s in job.seats if s.node in staying or s.member in kept])


def reseat(state: ClusterState, job: Job, seats: list[Placement]) -> None:
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
    state.touch_all()  # another job may wait for a node that this one leaves
