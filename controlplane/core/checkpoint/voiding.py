"""Help ranks that have no free slot, and say which snapshots can never be whole.

A Release may be lost with a stream: it is sent again. Ranks may hold different steps, each waiting for the
others: those steps are voided, so that all begin anew at one later step. Where the ranks agree among
themselves what they overwrite (`Snapshots.by_ranks`), none waits for a slot; but a step that they keep for
the coordinator, and that some rank lacks, is voided too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import skipping
from controlplane.core.records import effects as fx
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.words import NEVER_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def release(job: Job, node: str) -> fx.Release:
    """The newest Release, for the ranks of a node."""
    known = job.snapshots
    return fx.Release(node, job.name, known.released, known.voided, known.kept_from or 0)


def lapsed(state: ClusterState, job: Job, step: int) -> None:
    """Look at the job soon: a rank is two snapshot intervals, or more, past the newest release.

    When no rank finds a free slot, no snapshot is reported any more, and the ranks' steps are the only sign.
    The look is put off by `retry_s`, since all ranks show this sign at about the same time. There is none to
    be made where the ranks agree among themselves what they overwrite, once they have a snapshot of this
    generation in common."""
    first = job.generation.resume.step if job.generation else NO_STEP
    if job.snapshots.by_ranks and job.snapshots.released > first:
        job.snapshots.lapse_step = NEVER_STEP
        return
    job.snapshots.lapse_step = step + job.spec.snapshot_every
    if job.phase is JobPhase.RUNNING:
        state.wake(job, state.now + state.settings.retry_s)


def release_again(state: ClusterState, job: Job) -> None:
    """Help ranks that are two snapshot intervals past their newest snapshot: they have no free slot.

    Such a rank has missed the release, which is sent again; or it holds a step newer than the release that
    others have left out. Then that step is voided, and all ranks are told."""
    if job.snapshots.by_ranks:
        _void_what_some_lack(state, job)
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
            state.order(job, key, release(job, node), state.settings.long_retry_s)


def missed_a_snapshot(job: Job, member: Member) -> bool:
    """Whether a rank found no free slot for a snapshot that it should have made since its newest one."""
    told, (step, newest, _) = member.told, member.steps
    if told is None:
        return False
    newest = max(newest, job.snapshots.released)
    if told.phase is MemberPhase.FINISHED and newest < told.held_step:
        return True
    return not job.snapshots.by_ranks and step >= newest + 2 * job.spec.snapshot_every


def _some_missed_one(job: Job) -> bool:
    """Whether any rank can have missed a snapshot: one has finished, or is two snapshot intervals past the
    release. This check spares a walk over all ranks."""
    finished = len(job.seating.rank_sets.unfinished) < len(job.seats)
    behind = job.restore.newest_step >= job.snapshots.released + 2 * job.spec.snapshot_every
    return finished or (behind and not job.snapshots.by_ranks)


def _void_what_some_lack(state: ClusterState, job: Job) -> None:
    """Tell ranks that agree among themselves that a step that they keep for the coordinator is void, if some
    rank has left it out. Without that they would keep it until they give up waiting for an answer."""
    again_s, voided = state.settings.long_retry_s, job.snapshots.voided
    if not _paced(state, job, again_s):
        return
    state.wake(job, state.now + again_s)
    _begin_anew(state, job)
    if job.snapshots.voided > voided:
        say_again(state, job)


def _begin_anew(state: ClusterState, job: Job) -> None:
    """Void the steps that ranks have left out, up to one that no rank will have reached when it hears of it.

    If only the known steps were voided, each rank would make its next snapshot as soon as it heard so, at
    different steps, and they would go on missing each other. This way all begin anew at the same step. Not
    where the ranks agree on the steps: there the next one is as good as any."""
    passed, settled = _passed_over(job), max(job.snapshots.voided, job.snapshots.released)
    if passed > settled and _paced(state, job, state.settings.retry_s):
        agree = job.spec.snapshot_auto or job.snapshots.by_ranks
        soon = passed if agree else _reached_soon(state, job)
        _void(state, job, passed, max(passed, soon))


def _paced(state: ClusterState, job: Job, spent_s: float) -> bool:
    """Whether the ranks' pace has been measured for so long. If not, the job is woken when it will have been.

    Right after a late release (by a new leader, or after a cut network) the ranks are far beyond its step,
    which says nothing of their pace."""
    if job.snapshots.paced is None:
        job.snapshots.paced = (state.now, reached(job))
    known_at = job.snapshots.paced[0] + spent_s
    if state.now < known_at:
        state.wake(job, known_at)
    return state.now >= known_at


def reached(job: Job) -> int:
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


def give_up(state: ClusterState, job: Job) -> None:
    """Void every snapshot that is not released, so that all ranks have a free slot for the next one.

    Nothing is voided while some rank has not been heard: its report might make an older step whole."""
    if not job.seating.rank_sets.unreported:
        newest = max((held[-1] for held in job.snapshots.held.values()), default=NO_STEP)
        _void(state, job, newest, newest)


def _void(state: ClusterState, job: Job, passed: int, upto: int) -> None:
    """Void the snapshots up to step `upto`, and report the checkpoint that was due at `passed` as skipped."""
    if upto <= max(job.snapshots.voided, job.snapshots.released):
        return
    job.snapshots.voided = upto
    reason = "a rank had no room for its snapshot, so that not every rank has one of this step"
    skipping.missed(state, job, passed, reason)


def _passed_over(job: Job) -> int:
    """Return the newest step that some rank holds and another has left out; NO_STEP when there is none.

    NO_STEP also while some rank has not been heard (a new leader): an older step might turn out whole, and it
    would be voided with the others."""
    if any(mb.told is None for mb in job.seated()):
        return NO_STEP
    steps = {step for held in job.snapshots.held.values() for step in held if step > job.snapshots.released}
    newest_first = sorted(steps, reverse=True)
    return next(
        (step for step in newest_first if any(left_out(job, mb, step) for mb in job.seated())), NO_STEP
    )


def left_out(job: Job, member: Member, step: int) -> bool:
    """Whether this rank certainly has no snapshot of this step and will not make one."""
    if step in job.snapshots.held.get(member.rank, ()) or (status := member.status) is None:
        return False
    if status.phase is MemberPhase.FINISHED:
        return status.held_step > step
    return status.step >= step + job.spec.snapshot_every


def say_again(state: ClusterState, job: Job) -> None:
    """Send the newest Release to every connected node, whatever was sent before."""
    for node in job.seat_nodes() if max(job.snapshots.released, job.snapshots.voided) > NO_STEP else ():
        if state.up(node):
            job.sent_on_stream.put(("released", node), state.now)
            state.emit(release(job, node))
