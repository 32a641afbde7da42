"""How a job ends: its last checkpoint, what its scripts do behind their training, etcd, then every node.

A job is over when its processes are. Once every rank's function has returned and the final state is safe,
etcd is told; then the ranks return from it, and the job is LEAVING until each of them has exited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, releasing, requests, saving
from controlplane.core.failures import deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.recovery import barrier, incident_record
from controlplane.core.state.concerns import Ending
from controlplane.core.state.job import Job
from controlplane.core.state.saving import Stage

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.member import Member


OUTCOMES = {JobPhase.FINISHED: "recovered", JobPhase.FAILED: "failed", JobPhase.STOPPED: "stopped"}
"""What an incident came to that was open when its job ended."""


def stop_requested(m: ClusterState, event: ev.JobStopRequested) -> None:
    """A user asks for a job to end."""
    job = m.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None:
        m.drop(NoteKind.STALE_STOP, event.job, "no such job, or it is at its end")
        return
    if job.phase is not JobPhase.LEAVING:
        barrier.interrupt(m, job, event.reason)
    end(m, job, JobPhase.STOPPED, event.reason)


def end(m: ClusterState, job: Job, phase: JobPhase, reason: str) -> None:
    """End a job: etcd is told first, everybody else once it knows."""
    ok = phase is JobPhase.FINISHED
    job.ending = Ending(phase, ok, reason)
    job.generations.storing = None
    if job.recovery.incident is not None:
        incident_record.close(m, job, OUTCOMES[phase], {})
    effect = fx.StoreJob(job.name, job.state(phase, reason))
    m.store(f"job/{job.name}", effect, lambda: _ended(m, job))


def _ended(m: ClusterState, job: Job) -> None:
    if job.ending is None:
        return
    m.set_phase(job, job.ending.phase, job.ending.reason)
    job.ending = None
    saving.give_up(m, job, "the job has ended")
    requests.close(m, job)
    for node in dict.fromkeys(member.node for member in job.members.values()):
        order_complete(m, job, node, job.phase is JobPhase.FINISHED, job.reason)
    m.touch_all()  # another one may have waited for its nodes


def ended(m: ClusterState, job: Job) -> None:
    """Tell the nodes where processes of an ended job still live, or copies of its snapshots."""
    living = [member.node for member in job.members.values() if member.alive]
    keepers = [node.name for node in m.nodes.values() if node.copies_of(job.name)]
    for node in dict.fromkeys((*living, *keepers)):
        order_complete(m, job, node, job.phase is JobPhase.FINISHED, job.reason)


def order_complete(m: ClusterState, job: Job, node: str, ok: bool, reason: str) -> None:
    """The job is over on this node; said again while something of it lives there."""
    m.order(job, ("complete", node), fx.Complete(node, job.name, ok, reason), m.settings.long_retry_s)


def finishing(m: ClusterState, job: Job) -> None:
    """Every rank has finished: see the final state onto storage, then let their scripts go on, if they do."""
    final = max((mb.status.held_step for mb in job.seated() if mb.status), default=0)
    if not _final_saved(m, job, final):
        return
    reason = f"every rank finished at step {final}" if job.elastic else "every rank exited with code 0"
    good = commit.newest_good(job.checkpoints.records.values())
    if job.spec.storage and final > 0 and (good is None or good.step < final):
        lacking = releasing.no_room(job)
        reason += "; its final state could not be saved" + (f": {lacking}" if lacking else "")
    if job.recovery.inexact:
        reason += f"; not exact: {'; '.join(job.recovery.inexact)}"
    if len(job.seating.rolls.over) == len(job.seats):
        end(m, job, JobPhase.FINISHED, reason)
    else:
        _let_go(m, job, reason)


def _let_go(m: ClusterState, job: Job, reason: str) -> None:
    """Scripts that use the SDK may go on behind their function. The next leader has to know that they do: it
    is not to call them back."""
    if job.generations.letting_go[0]:
        return
    number = releasing.number_of(job)
    job.generations.letting_go = (number, reason)
    effect = fx.StoreJob(job.name, job.state(JobPhase.LEAVING, reason))
    m.store(f"job/{job.name}", effect, lambda: _left(m, job, number, reason))


def _left(m: ClusterState, job: Job, number: int, reason: str) -> None:
    if (
        job.generations.letting_go[0] != number
        or job.recovery.unjudged
        or job.ending is not None
        or not all_done(job)
    ):
        m.note(
            NoteKind.SUPERSEDED, job.name, "a rank was lost before the ranks could return from their function"
        )
        return
    job.generations.letting_go = (0, "")
    requests.close(m, job, "the training is over")
    m.set_phase(job, JobPhase.LEAVING, reason)
    m.touch(job)


def leaving(m: ClusterState, job: Job) -> None:
    """The scripts run on behind their function, for as long as they like: until every process has ended, or
    all of them have come to the barrier of another function."""
    rolls, number = job.seating.rolls, releasing.number_of(job)
    if rolls.unheard or rolls.dead:
        return
    if len(rolls.over) == len(job.seats):
        end(m, job, JobPhase.FINISHED, job.reason)
    elif len(rolls.ready) == len(job.seats):
        job.generations.onward = True
        m.set_phase(job, JobPhase.LOADING, "every rank has come to its next elastic function")
    elif rolls.ready and rolls.over:
        _parted(m, job)
    else:
        m.order_each(
            job, ("return", str(number)), job.seat_nodes(), lambda node: fx.Return(node, job.name, number)
        )


def _parted(m: ClusterState, job: Job) -> None:
    """Some wait at another function, and others will never come to it."""
    over = job.seating.at(job.seating.rolls.over)[0]
    message = f"it waits at another elastic function, and the script of rank {over.rank} has ended"
    for member in job.seating.at(job.seating.rolls.ready):
        deaths.mark_dead(m, job, member, Failure(Cause.STUCK, message))
        deaths.kill(m, job, member, message)


def _final_saved(m: ClusterState, job: Job, final: int) -> bool:
    """True when there is nothing (more) to wait for."""
    in_flight = any(each.stage is not Stage.COPY for each in job.checkpoints.savings.values())
    copying = any(each.stage is Stage.COPY for each in job.checkpoints.savings.values())
    begins = _final_needed(job, final) and not (in_flight or job.checkpoints.final_tried)
    late = _late(job, final, all_of_them=begins)
    if not (in_flight or copying or begins or late):
        return True
    if job.checkpoints.final_by is None:
        job.checkpoints.final_by = m.now + m.settings.final_checkpoint_timeout_s
    if m.now >= job.checkpoints.final_by:
        return True
    m.wake(job, job.checkpoints.final_by)
    for node in dict.fromkeys(mb.node for mb in late):
        # All ranks live with this state: a slot of an older one may make room for it.
        m.order(job, ("release", node, str(final)), fx.Release(node, job.name, final))
    if begins and not late:
        job.checkpoints.final_tried = True
        saving.begin(m, job, final)
    return False


def _late(job: Job, final: int, *, all_of_them: bool) -> list[Member]:
    """Who keeps no snapshot of the final state yet: a checkpoint waits for all of them. Without one, who will
    keep one is waited for: behind its function a rank has nothing else."""
    if all_of_them:
        return [mb for mb in job.seated() if not mb.status or mb.status.snapshot_step < final]
    if not (job.elastic and job.spec.snapshot_every and final > 0) or releasing.no_room(job):
        return []
    return [mb for mb in job.seated() if mb.status and _is_late(mb.status, final)]


def _is_late(status: MemberStatus, final: int) -> bool:
    return status.phase is MemberPhase.FINISHED and status.state_bytes > 0 and status.snapshot_step < final


def _final_needed(job: Job, final: int) -> bool:
    """Whether the final state is one to be saved, can be, and is not yet."""
    if not (job.spec.storage and job.elastic and final > 0) or releasing.no_room(job):
        return False
    good = commit.newest_good(job.checkpoints.records.values())
    return good is None or good.step < final


def all_done(job: Job) -> bool:
    """Whether every rank has done its work."""
    return not job.seating.rolls.unfinished
