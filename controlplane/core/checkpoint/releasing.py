"""Snapshots: which rank holds which steps, what all of them hold, and what may be overwritten.

A rank has two slots. The older one may be overwritten only when the newer is READY on all ranks: that is
what a Release says. A step that some rank has left out can never be whole: it becomes void."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state import cadence, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


RESTS = (MemberPhase.READY, MemberPhase.FINISHED)
STALL_KEPT = 0.9
"""What is left of the slowest copy's time with each further one: a decaying maximum."""


def begin(job: Job) -> None:
    """A generation begins: what its ranks hold is to be seen anew."""
    job.snapshots.held, job.snapshots.released, job.snapshots.voided, job.snapshots.behind = (
        {},
        NO_STEP,
        NO_STEP,
        NO_STEP,
    )
    first = job.generation.resume.step if job.generation else NO_STEP
    job.snapshots.lapse_step, job.snapshots.paced = NO_STEP, (job.recovery.clock.stored, first)
    job.reread()


def snapshot(m: ClusterState, event: ev.SnapshotReady) -> None:
    """A slot is READY: one more rank has this step."""
    job = m.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.rank < 0 or member.dead:
        m.drop(NoteKind.STALE_SNAPSHOT, event.member, "it has no seat here")
        return
    if job.generation is None or event.generation != job.generation.number:
        m.drop(NoteKind.STALE_SNAPSHOT, event.member, f"generation {event.generation} is not the current one")
        return
    job.checkpoints.costs.stall_s = max(event.stall_s, job.checkpoints.costs.stall_s * STALL_KEPT)
    _have(job, member.rank, event.step)
    if (event.generation, event.step) > max(member.kept, default=(0, NO_STEP)):
        member.kept = (*member.kept, (event.generation, event.step))[-2:]
    if not still_copied(job, member):
        m.touch(job)


def _have(job: Job, rank: int, step: int) -> None:
    """A rank has two slots: the newest two steps that it told of are what it holds."""
    held = job.snapshots.held.get(rank)
    if held is None:
        job.snapshots.held[rank] = (step,)
    elif step not in held:
        job.snapshots.held[rank] = tuple(sorted((*held, step)))[-2:]
    if step > job.restore.known_step:  # noqa: PLR1730 - of every rank in every beat
        job.restore.known_step = step


def lapsed(m: ClusterState, job: Job, step: int) -> None:
    """A rank trains on, two snapshots past the one released last, and says nothing else: when no rank finds
    room, that is all that is ever heard. So the job is looked at soon; not now, for all ranks show it."""
    job.snapshots.lapse_step = step + job.spec.snapshot_every
    if job.phase is JobPhase.RUNNING:
        m.wake(job, m.now + m.settings.retry_s)


def tend(m: ClusterState, job: Job) -> int:
    """Release what all ranks have. Returns the step that became whole just now; NO_STEP when none did."""
    if job.generation is None:
        return NO_STEP
    whole, first = len(job.snapshots.held) == len(job.seats), job.generation.resume.step
    step = common(job) if whole else NO_STEP
    if not whole and job.snapshots.released < first:
        step = job.snapshots.behind
    if step <= job.snapshots.released:
        _tell_new_streams(m, job)
        _release_again(m, job)
        return NO_STEP
    job.snapshots.released, job.snapshots.lapse_step = step, step + 2 * job.spec.snapshot_every
    job.snapshots.paced = (m.now, max(step, _reached(job)))
    for node in job.seat_nodes():
        job.told.put(("released", node), m.now)
        m.emit(fx.Release(node, job.name, step))
    return step if whole else NO_STEP


def _tell_new_streams(m: ClusterState, job: Job) -> None:
    """What was released while an agent was away its ranks have not heard: they would find no room."""
    seen = (m.streams, job.seating.version)
    if job.snapshots.released <= NO_STEP or job.snapshots.retold == seen:
        return
    job.snapshots.retold = seen
    for node in job.seat_nodes():
        if m.up(node) and ("released", node) not in job.told:
            job.told.put(("released", node), m.now)
            m.emit(fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided))


def say_again(m: ClusterState, job: Job) -> None:
    """Tell every rank what it may overwrite, whatever it was told before."""
    for node in job.seat_nodes() if max(job.snapshots.released, job.snapshots.voided) > NO_STEP else ():
        if m.up(node):
            job.told.put(("released", node), m.now)
            m.emit(fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided))


def let_go(job: Job, step: int) -> bool:
    """Whether its ranks may overwrite a snapshot of this step that they hold."""
    return step < job.snapshots.released or job.snapshots.released < step <= job.snapshots.voided


def give_up(m: ClusterState, job: Job) -> None:
    """Void every snapshot that is not released: then all ranks have room for the next. Only what is older is
    lost by it; but none of a job of which a rank was not heard, as for `_passed_over`."""
    if not job.seating.rolls.unheard:
        newest = max((held[-1] for held in job.snapshots.held.values()), default=NO_STEP)
        _void(m, job, newest, newest)


def common(job: Job) -> int:
    """The newest step that every rank holds; NO_STEP when there is none, or it is void."""
    for step in reversed(next(iter(job.snapshots.held.values()), ())):
        if all(step in held for held in job.snapshots.held.values()):
            return step if step > job.snapshots.voided or _rests(job, step) else NO_STEP
    return NO_STEP


def _rests(job: Job, step: int) -> bool:
    """Whether this is what every rank made last, and none makes another one: void or not, it stays."""
    return all(
        mb.status is not None and mb.status.snapshot_step == step and mb.status.phase in RESTS
        for mb in job.seated()
    )


def held_by_all(job: Job, step: int) -> bool:
    """Whether every rank has told that it holds this step, and nothing newer has taken its place."""
    return all(step in job.snapshots.held.get(seat.rank, ()) for seat in job.seats)


def from_statuses(job: Job) -> None:
    """Beats repair lost reports: what members say now of their slots, of those who say something new."""
    unread, job.unread = job.unread, {}
    number, first = number_of(job), job.generation.resume.step if job.generation else NO_STEP
    for member in unread.values():
        status = member.status
        if status is None or not job.seating.holds(member):
            continue
        if job.snapshots.behind < status.snapshot_step <= first:
            job.snapshots.behind = status.snapshot_step
        if status.snapshot_generation == number:
            from_status(job, member)


def from_status(job: Job, member: Member) -> None:
    """What the newest status of a seated member tells of its slots."""
    status, generation = member.status, job.generation
    if generation is None or status is None or status.snapshot_generation != generation.number:
        return
    if member.failure is None:
        for step in (status.snapshot_before, status.snapshot_step):
            if step > NO_STEP:
                _have(job, member.rank, step)


def left_out(job: Job, member: Member, step: int) -> bool:
    """Whether this rank surely has no snapshot of this step, and will have none."""
    status = member.status
    if status is None or step in job.snapshots.held.get(member.rank, ()):
        return False
    if status.phase is MemberPhase.FINISHED:
        return status.held_step > step
    return status.step >= step + job.spec.snapshot_every


def no_room(job: Job) -> str:
    """Why no snapshot of this job can be whole: a rank has no shared memory. "" when all have."""
    for member in job.seating.at(job.seating.rolls.roomless)[:1]:
        return f"rank {member.rank} on {member.node}: {member.status.no_room if member.status else ''}"
    return ""


def _release_again(m: ClusterState, job: Job) -> None:
    """A rank that is two snapshots on and made none has missed the release; or the others have passed
    over the one that it holds: that one is void then, so that all can go on from the next."""
    if not _some_behind(job):
        return
    m.wake(job, m.now + m.settings.long_retry_s)
    for member in job.seated():
        status = member.status
        if status is None or not behind(job, status):
            continue
        nodes: Sequence[str] = [member.node]
        if status.snapshot_step > job.snapshots.released:
            _begin_anew(m, job)
            nodes = job.seat_nodes()
        for node in nodes if max(job.snapshots.released, job.snapshots.voided) > NO_STEP else []:
            key = ("release", node, str(job.snapshots.released), str(job.snapshots.voided))
            order = fx.Release(node, job.name, job.snapshots.released, job.snapshots.voided)
            m.order(job, key, order, m.settings.long_retry_s)


def _begin_anew(m: ClusterState, job: Job) -> None:
    """Where ranks have passed over each other's snapshots, all begin anew at the same step, one that no rank
    has reached when it hears of it: were only those void that are known, each rank would make its next one as
    soon as it hears, and they would go on missing each other."""
    passed = _passed_over(job)
    if passed > max(job.snapshots.voided, job.snapshots.released) and _paced(m, job):
        _void(m, job, passed, max(passed, _reached_soon(m, job)))


def _paced(m: ClusterState, job: Job) -> bool:
    """Whether the pace of the ranks has been watched for long enough. Right after a late release (that of a
    new leader, or one that a cut network held up) they are far beyond that step, whatever their pace."""
    if job.snapshots.paced is None:
        job.snapshots.paced = (m.now, _reached(job))
    known_at = job.snapshots.paced[0] + m.settings.retry_s
    if m.now < known_at:
        m.wake(job, known_at)
    return m.now >= known_at


def _reached(job: Job) -> int:
    """The step that half of the ranks are known to have reached, whatever the others say."""
    steps = sorted(member.status.step for member in job.seated() if member.status is not None)
    return steps[len(steps) // 2] if steps else NO_STEP


def _reached_soon(m: ClusterState, job: Job) -> int:
    """The step in which the ranks will be once they have heard what they are told now, at the pace that they
    had since the last release. Half of them are believed, whatever the others say."""
    since, first = job.snapshots.paced or (m.now, NO_STEP)
    heard_by = m.now + 2 * m.settings.retry_s
    found = []
    for member in job.seated():
        if member.status is not None:
            step, spent_s = member.status.step, max(m.settings.retry_s, member.seen_at - since)
            pace = max(0, step - first) / spent_s
            found.append(step + pace * (heard_by - member.seen_at))
    return int(sorted(found)[len(found) // 2])


def _some_behind(job: Job) -> bool:
    """Whether any rank can be `behind` at all: nobody has done its work, or come so far."""
    finished = len(job.seating.rolls.unfinished) < len(job.seats)
    return finished or job.restore.newest_step >= job.snapshots.released + 2 * job.spec.snapshot_every


def _void(m: ClusterState, job: Job, passed: int, upto: int) -> None:
    """No snapshot up to `upto` will be whole any more: a checkpoint that was to be made of one that some rank
    has `passed` over is not."""
    if upto <= max(job.snapshots.voided, job.snapshots.released):
        return
    job.snapshots.voided = upto
    reason = "a rank had no room for its snapshot, so that not every rank has one of this step"
    missed(m, job, passed, reason)


def miss(m: ClusterState, job: Job) -> None:
    """Without room there is no checkpoint, and training goes on: each one that was due is told."""
    reason = no_room(job)
    if not reason or not job.spec.storage:
        return
    step = max((mb.status.step for mb in job.seated() if mb.status), default=NO_STEP)
    if step > 0:
        missed(m, job, step, reason)
    m.wake(job, m.now + m.settings.long_retry_s)


def missed(m: ClusterState, job: Job, step: int, reason: str) -> None:
    """Say that the checkpoint which is due at `step`, if one is, is skipped; once for each."""
    last = cadence.Last(
        max(job.checkpoints.begun, job.checkpoints.skipped),
        max(job.checkpoints.begun_at, job.checkpoints.skipped_at),
    )
    if not job.spec.storage or not cadence.due(job.spec, step, m.now, last, job.checkpoints.choice):
        return
    job.checkpoints.skipped, job.checkpoints.skipped_at = step, m.now
    crossed = step - step % job.spec.checkpoint_every
    name = f"{crossed if crossed > last.step else step}-{number_of(job)}"
    m.emit(fx.CheckpointChanged(job.name, name, "skipped", reason))


def number_of(job: Job) -> int:
    """The number of the job's generation, 0 when there is none."""
    return job.generation.number if job.generation else 0


def _passed_over(job: Job) -> int:
    """The newest snapshot that some rank made and another has surely left out; NO_STEP when there is none,
    or when not every rank has been heard (a new leader): an older one may be whole, and would be voided."""
    if any(mb.status is None for mb in job.seated()):
        return NO_STEP
    steps = [step for held in job.snapshots.held.values() for step in held if step > job.snapshots.released]
    return max(
        (step for step in steps if any(left_out(job, mb, step) for mb in job.seated())), default=NO_STEP
    )


def behind(job: Job, status: MemberStatus) -> bool:
    """Whether it found no room for a snapshot that it should have made since its newest."""
    newest = max(status.snapshot_step, job.snapshots.released)
    if status.phase is MemberPhase.FINISHED and newest < status.held_step:
        return True
    return status.step >= newest + 2 * job.spec.snapshot_every


def still_copied(job: Job, member: Member) -> bool:
    """After a member's snapshot: whether some other rank has no newer one than was released."""
    return waiting.quiet(job) and waiting.in_seat(job, member) and uncopied(job, member)


def uncopied(job: Job, member: Member) -> bool:
    """Whether the snapshots of this member change nothing: another rank has none that is new."""
    status, generation = member.status, job.generation
    if status is None or generation is None or behind(job, status):
        return False
    if status.snapshot_generation == generation.number or status.snapshot_step == NO_STEP:
        held = job.snapshots.held
        return waiting.is_waited_for(
            job, "copied", lambda mb: max(held.get(mb.rank, ()), default=NO_STEP) <= job.snapshots.released
        )
    return status.snapshot_step > generation.resume.step or job.snapshots.released >= status.snapshot_step
