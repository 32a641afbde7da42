"""Follow which snapshots each rank holds, and allow ranks to overwrite those that are not needed.

A rank's arena has two slots. The older one may be overwritten only when the newer step is READY on all ranks,
so that one step is whole at every moment: a Release order allows it. A step that some rank left out can never
become whole; it is void, and its slot may be overwritten too (voiding.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import due, voiding
from controlplane.core.records.model import NO_STEP, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state import waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


RESTS = (MemberPhase.READY, MemberPhase.FINISHED)
"""Phases in which a rank does not train, and so makes no further snapshot."""
STALL_KEPT = 0.9
"""Factor by which the longest time of a copy shrinks with each further copy: a decaying maximum."""


def begin(job: Job) -> None:
    """Forget the snapshots of the former generation: a new one begins."""
    (
        job.snapshots.held,
        job.snapshots.released,
        job.snapshots.voided,
        job.snapshots.newest_before_generation,
    ) = (
        {},
        NO_STEP,
        NO_STEP,
        NO_STEP,
    )
    first = job.generation.resume.step if job.generation else NO_STEP
    job.snapshots.lapse_step, job.snapshots.paced = NO_STEP, (job.recovery.clock.stored, first)
    job.snapshots.by_ranks, job.snapshots.kept_from = False, 0
    job.snapshots.whole_before = _whole_before(job)
    job.reread()


def _whole_before(job: Job) -> int:
    """The newest step of earlier generations that all ranks hold; NO_STEP: there is none."""
    first = job.generation.resume.step if job.generation else NO_STEP
    steps = [{step for _, step in member.kept if step <= first} for member in job.seated()]
    return max(set.intersection(*steps), default=NO_STEP) if steps else NO_STEP


def snapshot(state: ClusterState, event: ev.SnapshotReady) -> None:
    """Record that a member's slot is READY with a step."""
    job = state.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.rank < 0 or member.dead:
        state.drop(NoteKind.STALE_SNAPSHOT, event.member, "it has no seat here")
        return
    if job.generation is None or event.generation != job.generation.number:
        state.drop(
            NoteKind.STALE_SNAPSHOT, event.member, f"generation {event.generation} is not the current one"
        )
        return
    if event.spacing:
        state.note(NoteKind.SNAPSHOT_SPACING, job.name, event.spacing)
    job.checkpoints.costs.stall_s = max(event.stall_s, job.checkpoints.costs.stall_s * STALL_KEPT)
    _have(job, member.rank, event.step)
    if (event.generation, event.step) > max(member.kept, default=(0, NO_STEP)):
        member.kept = (*member.kept, (event.generation, event.step))[-2:]
    if not still_copied(job, member):
        state.touch(job)


def _have(job: Job, rank: int, step: int) -> None:
    """Record that a rank holds this step. It has two slots, so the newest two steps are what it holds."""
    held = job.snapshots.held.get(rank)
    if held is None:
        job.snapshots.held[rank] = (step,)
    elif step not in held:
        job.snapshots.held[rank] = tuple(sorted((*held, step)))[-2:]
    if step > job.restore.known_step:  # noqa: PLR1730 - of every rank in every beat
        job.restore.known_step = step


def reconcile(state: ClusterState, job: Job) -> int:
    """Release the newest step that all ranks hold. Returns it when it became whole just now and they keep it
    for a checkpoint, else NO_STEP.

    Until every rank holds a snapshot of this generation, the slots with older generations' snapshots are
    released (`Snapshots.behind`), or no rank could make its first one."""
    if job.generation is None:
        return NO_STEP
    whole, first = len(job.snapshots.held) == len(job.seats), job.generation.resume.step
    step = common(job) if whole else NO_STEP
    if not whole and job.snapshots.released < first:
        step = job.snapshots.newest_before_generation
    if step <= job.snapshots.released:
        _send_to_new_streams(state, job)
        voiding.release_again(state, job)
        return NO_STEP
    job.snapshots.released, job.snapshots.lapse_step = step, step + 2 * job.spec.snapshot_every
    job.snapshots.paced = (state.now, max(step, voiding.reached(job)))
    told = job.snapshots.kept_from
    kept = not job.snapshots.by_ranks or (told is not None and step >= told)
    job.snapshots.kept_from = due.kept_from(state, job, step)
    for node in job.seat_nodes():
        _send(state, job, node)
    return step if whole and kept else NO_STEP


def _send(state: ClusterState, job: Job, node: str) -> None:
    job.sent_on_stream.put(("released", node), state.now)
    state.emit(voiding.release(job, node))


def _send_to_new_streams(state: ClusterState, job: Job) -> None:
    """Send the newest Release to nodes whose stream is new: their ranks missed what was sent meanwhile, and
    would find no free slot."""
    seen = (state.streams, job.seating.version)
    if job.snapshots.released <= NO_STEP or job.snapshots.sent_on == seen:
        return
    job.snapshots.sent_on = seen
    for node in job.seat_nodes():
        if state.up(node) and ("released", node) not in job.sent_on_stream:
            _send(state, job, node)


def common(job: Job) -> int:
    """Return the newest step that every rank heard of holds; NO_STEP when there is none, or it is void."""
    for step in reversed(next(iter(job.snapshots.held.values()), ())):
        if all(step in held for held in job.snapshots.held.values()):
            return step if step > job.snapshots.voided or _rests(job, step) else NO_STEP
    return NO_STEP


def _rests(job: Job, step: int) -> bool:
    """Whether this step is every rank's newest snapshot, and no rank trains: then even a void one counts."""
    return all(
        mb.status is not None and mb.status.snapshot_step == step and mb.status.phase in RESTS
        for mb in job.seated()
    )


def held_by_all(job: Job, step: int) -> bool:
    """Whether every rank has reported this step, and no newer step has taken its slot."""
    return all(step in job.snapshots.held.get(seat.rank, ()) for seat in job.seats)


def from_statuses(job: Job) -> None:
    """Read the slots from the statuses of members that have changed: heartbeats make up for lost reports."""
    unread, job.unread = job.unread, {}
    first = job.generation.resume.step if job.generation else NO_STEP
    # One that some rank lacks would take the place of one that is whole at the nodes that keep copies.
    copied = job.spec.copied_away and job.generation is not None and bool(job.generation.resume.sources)
    for member in unread.values():
        if member.told is None or not job.seating.holds(member):
            continue
        _, newest, _ = member.steps
        if job.snapshots.newest_before_generation < newest <= first and (
            not copied or newest == job.snapshots.whole_before
        ):
            job.snapshots.newest_before_generation = newest
        from_status(job, member)


def from_status(job: Job, member: Member) -> None:
    """Record the slots of this generation that the newest status of a seated member shows."""
    told, generation = member.told, job.generation
    if generation is None or told is None or told.snapshot_generation != generation.number:
        return
    job.snapshots.by_ranks = job.snapshots.by_ranks or told.offers
    if member.failure is None:
        _, newest, before = member.steps
        for step in (before, newest):
            if step > NO_STEP:
                _have(job, member.rank, step)


def still_copied(job: Job, member: Member) -> bool:
    """Whether a member's new snapshot changes nothing, so that the job need not be driven on (fast path)."""
    return waiting.quiet(job) and waiting.in_seat(job, member) and uncopied(job, member)


def uncopied(job: Job, member: Member) -> bool:
    """Whether this member's snapshots change nothing: some other rank holds none newer than the release.

    A snapshot of an earlier generation matters only while its slot has to be released."""
    status, generation = member.status, job.generation
    if status is None or generation is None or voiding.missed_a_snapshot(job, member):
        return False
    if status.snapshot_generation == generation.number or status.snapshot_step == NO_STEP:
        return _some_hold_none(job)
    return status.snapshot_step > generation.resume.step or job.snapshots.released >= status.snapshot_step


def all_uncopied(job: Job, members: Sequence[Member]) -> bool:
    """Whether the same holds for the snapshots of all these members, which train in the generation and have
    made them in it."""
    return not any(voiding.missed_a_snapshot(job, member) for member in members) and _some_hold_none(job)


def _some_hold_none(job: Job) -> bool:
    """Whether some rank holds no snapshot of this generation that is newer than the release."""
    number, released, held = job.generation_number, job.snapshots.released, job.snapshots.held

    def holds_none(member: Member) -> bool:
        told, newest = member.told, held.get(member.rank, (NO_STEP,))[-1]
        if newest <= released and told is not None and told.snapshot_generation == number:
            return member.failure is not None or member.steps[1] <= released  # its slots may be unread
        return newest <= released

    return waiting.is_waited_for(job, "copied", holds_none)
