"""Follow which snapshots each rank holds, and allow ranks to overwrite those that are not needed.

A rank's arena has two slots. The older one may be overwritten only when the newer step is READY on all ranks,
so that one step is whole at every moment: a Release order allows it. A step that some rank left out can never
become whole; it is void, and its slot may be overwritten too. Two things can block ranks that have no free
slot: a Release that was lost with a stream (it is sent again), and ranks that hold different steps, each
waiting for the others (those steps are voided, so that all begin anew at one later step)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state import cadence, waiting

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
    job.reread()


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


def lapsed(state: ClusterState, job: Job, step: int) -> None:
    """Look at the job soon: a rank is two snapshot intervals, or more, past the newest release.

    When no rank finds a free slot, no snapshot is reported any more, and the ranks' steps are the only sign.
    The look is put off by `retry_s`, since all ranks show this sign at about the same time."""
    job.snapshots.lapse_step = step + job.spec.snapshot_every
    if job.phase is JobPhase.RUNNING:
        state.wake(job, state.now + state.settings.retry_s)


def reconcile(state: ClusterState, job: Job) -> int:
    """Release the newest step that all ranks hold. Returns it when it became whole just now, else NO_STEP.

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
        _release_again(state, job)
        return NO_STEP
    job.snapshots.released, job.snapshots.lapse_step = step, step + 2 * job.spec.snapshot_every
    job.snapshots.paced = (state.now, max(step, _reached(job)))
    for node in job.seat_nodes():
        job.sent_on_stream.put(("released", node), state.now)
        state.emit(fx.Release(node, job.name, step))
    return step if whole else NO_STEP


def _send_to_new_streams(state: ClusterState, job: Job) -> None:
    """Send the newest Release to nodes whose stream is new: their ranks missed what was sent meanwhile, and
    would find no free slot."""
    seen = (state.streams, job.seating.version)
    if job.snapshots.released <= NO_STEP or job.snapshots.sent_on == seen:
        return
    job.snapshots.sent_on = seen
    for node in job.seat_nodes():
        if state.up(node) and ("released", node) not in job.sent_on_stream:
            job.sent_on_stream.put(("released", node), state.now)
            state.emit(fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided))


def say_again(state: ClusterState, job: Job) -> None:
    """Send the newest Release to every connected node, whatever was sent before."""
    for node in job.seat_nodes() if max(job.snapshots.released, job.snapshots.voided) > NO_STEP else ():
        if state.up(node):
            job.sent_on_stream.put(("released", node), state.now)
            state.emit(fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided))


def let_go(job: Job, step: int) -> bool:
    """Whether ranks may overwrite a snapshot of this step: it is older than the release, or void."""
    return step < job.snapshots.released or job.snapshots.released < step <= job.snapshots.voided


def give_up(state: ClusterState, job: Job) -> None:
    """Void every snapshot that is not released, so that all ranks have a free slot for the next one.

    Nothing is voided while some rank has not been heard: its report might make an older step whole."""
    if not job.seating.rank_sets.unreported:
        newest = max((held[-1] for held in job.snapshots.held.values()), default=NO_STEP)
        _void(state, job, newest, newest)


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
    for member in unread.values():
        if member.told is None or not job.seating.holds(member):
            continue
        _, newest, _ = member.steps
        if job.snapshots.newest_before_generation < newest <= first:
            job.snapshots.newest_before_generation = newest
        from_status(job, member)


def from_status(job: Job, member: Member) -> None:
    """Record the slots of this generation that the newest status of a seated member shows."""
    told, generation = member.told, job.generation
    if generation is None or told is None or told.snapshot_generation != generation.number:
        return
    if member.failure is None:
        _, newest, before = member.steps
        for step in (before, newest):
            if step > NO_STEP:
                _have(job, member.rank, step)


def left_out(job: Job, member: Member, step: int) -> bool:
    """Whether this rank certainly has no snapshot of this step and will not make one."""
    status = member.status
    if status is None or step in job.snapshots.held.get(member.rank, ()):
        return False
    if status.phase is MemberPhase.FINISHED:
        return status.held_step > step
    return status.step >= step + job.spec.snapshot_every


def no_room(job: Job) -> str:
    """Return why no snapshot can be whole: some rank has no shared memory for one; "" when all have it."""
    for member in job.seating.at(job.seating.rank_sets.roomless)[:1]:
        return f"rank {member.rank} on {member.node}: {member.status.no_room if member.status else ''}"
    return ""


def _release_again(state: ClusterState, job: Job) -> None:
    """Help ranks that are two snapshot intervals past their newest snapshot: they have no free slot.

    Such a rank has missed the release, which is sent again; or it holds a step newer than the release that
    others have left out. Then that step is voided, and all ranks are told."""
    if not _some_missed_one(job):
        return
    state.wake(job, state.now + state.settings.long_retry_s)
    if job.seating.rank_sets.unreported and max(job.snapshots.released, job.snapshots.voided) <= NO_STEP:
        return  # a new leader that has not heard all ranks: it knows of nothing that could be said or voided
    for member in job.seated():
        if not missed_a_snapshot(job, member):
            continue
        nodes: Sequence[str] = [member.node]
        if member.steps[1] > job.snapshots.released:
            _begin_anew(state, job)
            nodes = job.seat_nodes()
        for node in nodes if max(job.snapshots.released, job.snapshots.voided) > NO_STEP else []:
            key = ("release", node, str(job.snapshots.released), str(job.snapshots.voided))
            order = fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided)
            state.order(job, key, order, state.settings.long_retry_s)


def _begin_anew(state: ClusterState, job: Job) -> None:
    """Void the steps that ranks have left out, up to one that no rank will have reached when it hears of it.

    If only the known steps were voided, each rank would make its next snapshot as soon as it heard so, at
    different steps, and they would go on missing each other. This way all begin anew at the same step. Not
    with `snapshot_auto`: there the ranks agree on the steps, and the next one is as good as any."""
    passed = _passed_over(job)
    if passed > max(job.snapshots.voided, job.snapshots.released) and _paced(state, job):
        soon = passed if job.spec.snapshot_auto else _reached_soon(state, job)
        _void(state, job, passed, max(passed, soon))


def _paced(state: ClusterState, job: Job) -> bool:
    """Whether the ranks' pace has been measured for long enough.

    Right after a late release (by a new leader, or after a cut network) the ranks are far beyond its step,
    which says nothing of their pace."""
    if job.snapshots.paced is None:
        job.snapshots.paced = (state.now, _reached(job))
    known_at = job.snapshots.paced[0] + state.settings.retry_s
    if state.now < known_at:
        state.wake(job, known_at)
    return state.now >= known_at


def _reached(job: Job) -> int:
    """Return the median of the ranks' steps, which a few wrong reports cannot move; NO_STEP: none heard."""
    steps = sorted(member.steps[0] for member in job.seated() if member.told is not None)
    return steps[len(steps) // 2] if steps else NO_STEP


def _reached_soon(state: ClusterState, job: Job) -> int:
    """Return the step in which the ranks will be when they get an order that is sent now: the median over the
    ranks of step + pace * time, with the pace since the last release and two `retry_s` for the way."""
    since, first = job.snapshots.paced or (state.now, NO_STEP)
    order_arrives_at = state.now + 2 * state.settings.retry_s
    found = []
    for member in job.seated():
        if member.status is not None:
            step, spent_s = member.status.step, max(state.settings.retry_s, member.seen_at - since)
            pace = max(0, step - first) / spent_s
            found.append(step + pace * (order_arrives_at - member.seen_at))
    return int(sorted(found)[len(found) // 2])


def _some_missed_one(job: Job) -> bool:
    """Whether any rank can have missed a snapshot: one has finished, or is two snapshot intervals past the
    release. This check spares a walk over all ranks."""
    finished = len(job.seating.rank_sets.unfinished) < len(job.seats)
    return finished or job.restore.newest_step >= job.snapshots.released + 2 * job.spec.snapshot_every


def _void(state: ClusterState, job: Job, passed: int, upto: int) -> None:
    """Void the snapshots up to step `upto`, and report the checkpoint that was due at `passed` as skipped."""
    if upto <= max(job.snapshots.voided, job.snapshots.released):
        return
    job.snapshots.voided = upto
    reason = "a rank had no room for its snapshot, so that not every rank has one of this step"
    missed(state, job, passed, reason)


def miss(state: ClusterState, job: Job) -> None:
    """Report each due checkpoint as skipped while some rank has no memory for snapshots."""
    reason = no_room(job)
    if not reason or not job.spec.storage:
        return
    step = max((mb.status.step for mb in job.seated() if mb.status), default=NO_STEP)
    if step > 0:
        missed(state, job, step, reason)
    state.wake(job, state.now + state.settings.long_retry_s)


def missed(state: ClusterState, job: Job, step: int, reason: str) -> None:
    """Report, once, that the checkpoint due at `step` is skipped; nothing if none is due."""
    last = cadence.Last(
        max(job.checkpoints.begun, job.checkpoints.skipped),
        max(job.checkpoints.begun_at, job.checkpoints.skipped_at),
    )
    if not job.spec.storage or not cadence.due(job.spec, step, state.now, last, job.checkpoints.choice):
        return
    job.checkpoints.skipped, job.checkpoints.skipped_at = step, state.now
    crossed = step - step % job.spec.checkpoint_every
    name = f"{crossed if crossed > last.step else step}-{number_of(job)}"
    state.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))


def number_of(job: Job) -> int:
    """Return the number of the job's generation; 0 when there is none."""
    return job.generation.number if job.generation else 0


def _passed_over(job: Job) -> int:
    """Return the newest step that some rank holds and another has left out; NO_STEP when there is none.

    NO_STEP also while some rank has not been heard (a new leader): an older step might turn out whole, and it
    would be voided with the others."""
    if any(mb.status is None for mb in job.seated()):
        return NO_STEP
    steps = [step for held in job.snapshots.held.values() for step in held if step > job.snapshots.released]
    return max(
        (step for step in steps if any(left_out(job, mb, step) for mb in job.seated())), default=NO_STEP
    )


def missed_a_snapshot(job: Job, member: Member) -> bool:
    """Whether a rank found no free slot for a snapshot that it should have made since its newest one."""
    told, (step, newest, _) = member.told, member.steps
    if told is None:
        return False
    newest = max(newest, job.snapshots.released)
    if told.phase is MemberPhase.FINISHED and newest < told.held_step:
        return True
    return step >= newest + 2 * job.spec.snapshot_every


def still_copied(job: Job, member: Member) -> bool:
    """Whether a member's new snapshot changes nothing, so that the job need not be driven on (fast path)."""
    return waiting.quiet(job) and waiting.in_seat(job, member) and uncopied(job, member)


def uncopied(job: Job, member: Member) -> bool:
    """Whether this member's snapshots change nothing: some other rank holds none newer than the release.

    A snapshot of an earlier generation matters only while its slot has to be released."""
    status, generation = member.status, job.generation
    if status is None or generation is None or missed_a_snapshot(job, member):
        return False
    if status.snapshot_generation == generation.number or status.snapshot_step == NO_STEP:
        return _some_hold_none(job)
    return status.snapshot_step > generation.resume.step or job.snapshots.released >= status.snapshot_step


def all_uncopied(job: Job, members: Sequence[Member]) -> bool:
    """Whether the same holds for the snapshots of all these members, which train in the generation and have
    made them in it."""
    return not any(missed_a_snapshot(job, member) for member in members) and _some_hold_none(job)


def _some_hold_none(job: Job) -> bool:
    """Whether some rank holds no snapshot of this generation that is newer than the release."""
    number, released, held = number_of(job), job.snapshots.released, job.snapshots.held

    def holds_none(member: Member) -> bool:
        told, newest = member.told, held.get(member.rank, (NO_STEP,))[-1]
        if newest <= released and told is not None and told.snapshot_generation == number:
            return member.failure is not None or member.steps[1] <= released  # its slots may be unread
        return newest <= released

    return waiting.is_waited_for(job, "copied", holds_none)
