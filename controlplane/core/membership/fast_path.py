"""Whether news of one member can move its job at all. A job of ten thousand ranks waits for its last one: as
long as somebody is known who is waited for, what the others say is put into the book, and nothing more.

The one who is waited for is looked at again, not counted: a wrong guess costs a look, never a decision.
Deadlines, deaths, nodes and orders always bring a whole look (`Cluster` drives the job on)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.words import ASKED, IN_GENERATION
from controlplane.core.recovery import incidents, rendezvous
from controlplane.core.state.resize import HALT, WARM

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.job import Job
    from controlplane.core.state.machine import Machine
    from controlplane.core.state.member import Member

_COMING = (*ASKED, MemberPhase.STARTING)


def still(m: Machine, job: Job, member: Member, old: MemberStatus | None) -> bool:
    """After a new status of this member (`old`: the one before): whether nothing follows from it."""
    look = _LOOKS.get(job.phase)
    if look is None or not _plain(job, member) or not _quiet(job) or (old is not None and old.no_room):
        return False
    if member.status is not None and member.status.snapshot_generation:
        releasing.from_status(job, member)
    return look(m, job, member, old.phase if old is not None else MemberPhase.LAUNCHED)


def still_started(m: Machine, job: Job) -> bool:
    """After a member's first step: whether others are waited for before the incident can be closed."""
    return _quiet(job) and (job.incident is None or _blocked(job, "started", _unstarted(job)))


def still_copied(job: Job, member: Member) -> bool:
    """After a member's snapshot: whether some other rank has no newer one than was released."""
    return _quiet(job) and _plain(job, member) and _uncopied(job, member)


def _quiet(job: Job) -> bool:
    """Nothing is under way that has an eye on every member."""
    if job.fresh or job.stalled or job.relaunch or (job.replan and job.phase is JobPhase.RUNNING):
        return False
    if job.pause or job.wanted_now or job.ending or job.hang or job.broken_since is not None:
        return False
    if job.asks and not all(ask.outcome for ask in job.asks.values()):
        return False
    resize = job.resize
    if resize is None or resize.stage == WARM:  # it looks at newcomers, who have no seats
        return True
    return resize.stage == HALT and resize.met and job.phase is JobPhase.STOPPING


def _plain(job: Job, member: Member) -> bool:
    """A living member in its seat, with nothing to complain of."""
    status = member.status
    if member.failure is not None or status is None or status.failure is not None or status.no_room:
        return False
    return job.seating.holds(member)


def _blocked(job: Job, name: str, waits: Callable[[Member], bool]) -> bool:
    """Whether somebody is waited for; the search goes on where it found the last one."""
    seated = job.seated()
    size = len(seated)
    first = job.watched.get(name, 0) % size
    if waits(seated[first]):
        return True
    for rank in chain(range(first + 1, size), range(first)):
        if waits(seated[rank]):
            job.watched[name] = rank
            return True
    return False


def _launching(_m: Machine, job: Job, member: Member, before: MemberPhase) -> bool:
    if before is MemberPhase.LAUNCHED and job.spec.spares_per_node and not _blocked(job, "unseen", _unseen):
        return False
    if member.phase not in (*_COMING, MemberPhase.READY):
        return False
    return _blocked(job, "launching", _unready if job.elastic else _unlaunched)


def _unseen(member: Member) -> bool:
    return member.status is None


def _unready(member: Member) -> bool:
    return member.phase is not MemberPhase.READY


def _unlaunched(member: Member) -> bool:
    return not member.dead and member.phase in ASKED


def _stopping(m: Machine, job: Job, member: Member, before: MemberPhase) -> bool:
    if member.phase in _COMING:
        return before in _COMING
    if member.phase in IN_GENERATION:
        return before in IN_GENERATION
    if not incidents.at_barrier(m, job, member):
        return False
    if before in _COMING:
        return _blocked(job, "barrier", lambda mb: not incidents.at_barrier(m, job, mb))
    return _blocked(job, "behind", lambda mb: _behind(m, job, mb))


def _behind(m: Machine, job: Job, member: Member) -> bool:
    if member.failure is not None:
        return False
    phase = member.phase
    if phase in IN_GENERATION:
        return True
    return phase is MemberPhase.READY and not incidents.at_barrier(m, job, member)


def _storing(_m: Machine, _job: Job, member: Member, before: MemberPhase) -> bool:
    return member.phase is before


def _forming(_m: Machine, job: Job, member: Member, before: MemberPhase) -> bool:
    generation = job.generation
    if generation is None or not generation.store:
        return False
    if member.phase is MemberPhase.READY:
        return before is MemberPhase.READY and member.generation < generation.number
    if member.phase not in (MemberPhase.FORMING, MemberPhase.RUNNING) or not _of(job, member):
        return False
    number = generation.number

    def waits(mb: Member) -> bool:
        status = mb.status
        runs = status is not None and status.phase is MemberPhase.RUNNING and status.generation == number
        return not (runs or mb.done)

    return _blocked(job, "forming", waits)


def _of(job: Job, member: Member) -> bool:
    """It is in the job's generation."""
    return job.generation is not None and member.generation == job.generation.number


def _running(m: Machine, job: Job, member: Member, before: MemberPhase) -> bool:
    generation = job.generation
    if generation is None or not generation.store or not _of(job, member) or before is not member.phase:
        return False
    if member.phase is not MemberPhase.RUNNING or not _uncopied(job, member):
        return False
    if job.incident is None:
        return True
    rendezvous.hint(m, job, member, generation)
    return _blocked(job, "started", _unstarted(job))


def _unstarted(job: Job) -> Callable[[Member], bool]:
    """Whom the end of an incident waits for."""
    number = job.generation.number if job.generation else 0
    first = job.generation.resume.step if job.generation else NO_STEP

    def waits(member: Member) -> bool:
        if member.done or member.started >= number or member.hint[0] == number:
            return False
        return member.status is None or member.status.step <= first

    return waits


def _uncopied(job: Job, member: Member) -> bool:
    """Whether the snapshots of this member change nothing: another rank has none that is new."""
    status, generation = member.status, job.generation
    if status is None or generation is None or releasing.behind(job, status):
        return False
    if status.snapshot_generation == generation.number or status.snapshot_step == NO_STEP:
        held = job.snapshots
        return _blocked(job, "copied", lambda mb: max(held.get(mb.rank, ()), default=NO_STEP) <= job.released)
    return status.snapshot_step > generation.resume.step or job.released >= status.snapshot_step


def _leaving(_m: Machine, job: Job, member: Member, before: MemberPhase) -> bool:
    if member.phase is not MemberPhase.EXITED or before is MemberPhase.READY:
        return False
    return _blocked(job, "leaving", lambda mb: mb.phase is MemberPhase.FINISHED)


_LOOKS: dict[JobPhase, Callable[[Machine, Job, Member, MemberPhase], bool]] = {
    JobPhase.LAUNCHING: _launching,
    JobPhase.STOPPING: _stopping,
    JobPhase.PARKED: _stopping,
    JobPhase.STORING: _storing,
    JobPhase.FORMING: _forming,
    JobPhase.RUNNING: _running,
    JobPhase.LEAVING: _leaving,
}
"""Phases that are not here are looked at whole, whatever comes."""
