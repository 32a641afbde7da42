"""End a job: save its final state, let the scripts run on after their training, and clean up its nodes.

When every rank has finished its elastic function, the final state is made safe first. Then the job's phase
LEAVING is put into etcd, and only then the ranks may return from the function: a leader that did not know
would call them back. After that only the processes count. When all have exited rightly, the job is FINISHED;
when all wait at the barrier again, their scripts have come to another elastic function. A final phase is also
put into etcd before the nodes are ordered to end what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, requests, saving, skipping
from controlplane.core.failures import deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, JobPhase, MemberPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.recovery import barrier, incident_record
from controlplane.core.restore import keepers
from controlplane.core.state.concerns import Ending
from controlplane.core.state.job import Job
from controlplane.core.state.saving import Stage

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.member import Member


OUTCOMES = {JobPhase.FINISHED: "recovered", JobPhase.FAILED: "failed", JobPhase.STOPPED: "stopped"}
"""Outcome of an incident that is open when its job ends, by the job's final phase."""


def stop_requested(state: ClusterState, event: ev.JobStopRequested) -> None:
    """End a job because people ask for it."""
    job = state.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None:
        state.drop(NoteKind.STALE_STOP, event.job, "no such job, or it is at its end")
        return
    if job.phase is not JobPhase.LEAVING:
        barrier.interrupt(state, job, event.reason)
    end(state, job, JobPhase.STOPPED, event.reason)


def end(state: ClusterState, job: Job, phase: JobPhase, reason: str) -> None:
    """End a job in the final `phase`; its nodes hear of it once etcd holds the phase."""
    ok = phase is JobPhase.FINISHED
    job.ending = Ending(phase, ok, reason)
    job.generations.storing = None
    if job.recovery.incident is not None:
        incident_record.close(state, job, OUTCOMES[phase], {})
    effect = fx.StoreJob(job.name, job.state(phase, reason))
    state.store(f"job/{job.name}", effect, lambda: _ended(state, job))


def _ended(state: ClusterState, job: Job) -> None:
    if job.ending is None:
        return
    state.set_phase(job, job.ending.phase, job.ending.reason)
    job.ending = None
    saving.give_up(state, job, "the job has ended")
    requests.close(state, job)
    for node in dict.fromkeys(member.node for member in job.members.values()):
        order_complete(state, job, node, job.phase is JobPhase.FINISHED, job.reason)
    state.touch_all()  # another job may have waited for its nodes


def ended(state: ClusterState, job: Job) -> None:
    """Order the nodes that still have processes of an ended job, or copies of its snapshots, to clean up."""
    living = [member.node for member in job.members.values() if member.alive]
    holders = [node.name for node in keepers.of(state, job.name)]
    for node in dict.fromkeys((*living, *holders)):
        order_complete(state, job, node, job.phase is JobPhase.FINISHED, job.reason)


def order_complete(state: ClusterState, job: Job, node: str, ok: bool, reason: str) -> None:
    """Order a node to end what it has of the job; repeated for as long as the caller asks for it."""
    state.order(job, ("complete", node), fx.Complete(node, job.name, ok, reason), state.settings.long_retry_s)


def finishing(state: ClusterState, job: Job) -> None:
    """Save the final state of a job whose ranks have all finished, then end it or let its scripts run on."""
    final = max((mb.status.held_step for mb in job.seated() if mb.status), default=0)
    if not _final_saved(state, job, final):
        return
    reason = f"every rank finished at step {final}" if job.elastic else "every rank exited with code 0"
    good = commit.newest_good(job.checkpoints.records.values())
    if job.spec.storage and final > 0 and (good is None or good.step < final):
        lacking = skipping.no_room(job)
        reason += "; its final state could not be saved" + (f": {lacking}" if lacking else "")
    if job.recovery.inexact:
        reason += f"; not exact: {'; '.join(job.recovery.inexact)}"
    if len(job.seating.rank_sets.over) == len(job.seats):
        end(state, job, JobPhase.FINISHED, reason)
    else:
        _let_go(state, job, reason)


def _let_go(state: ClusterState, job: Job, reason: str) -> None:
    """Put LEAVING into etcd, so that no later leader calls the ranks back; only then they may return."""
    if job.generations.letting_go[0]:
        return
    number = job.generation_number
    job.generations.letting_go = (number, reason)
    effect = fx.StoreJob(job.name, job.state(JobPhase.LEAVING, reason))
    state.store(f"job/{job.name}", effect, lambda: _left(state, job, number, reason))


def _left(state: ClusterState, job: Job, number: int, reason: str) -> None:
    if (
        job.generations.letting_go[0] != number
        or job.recovery.unjudged
        or job.ending is not None
        or not all_done(job)
    ):
        state.note(
            NoteKind.SUPERSEDED, job.name, "a rank was lost before the ranks could return from their function"
        )
        return
    job.generations.letting_go = (0, "")
    requests.close(state, job, "the training is over")
    state.set_phase(job, JobPhase.LEAVING, reason)
    state.touch(job)


def leaving(state: ClusterState, job: Job) -> None:
    """Wait until every process has ended, or all are at the barrier of another elastic function.

    Until then the scripts run on after their function, for as long as they like."""
    rank_sets, number = job.seating.rank_sets, job.generation_number
    if rank_sets.unreported or rank_sets.dead:
        return
    if len(rank_sets.over) == len(job.seats):
        end(state, job, JobPhase.FINISHED, job.reason)
    elif len(rank_sets.ready) == len(job.seats):
        job.generations.onward = True
        state.set_phase(job, JobPhase.LOADING, "every rank has come to its next elastic function")
    elif rank_sets.ready and rank_sets.over:
        _parted(state, job)
    else:
        state.order_each(
            job, ("return", str(number)), job.seat_nodes(), lambda node: fx.Return(node, job.name, number)
        )


def _parted(state: ClusterState, job: Job) -> None:
    """Mark dead and kill the ranks that wait at another elastic function when some script has ended: the
    group can never be complete."""
    over = job.seating.at(job.seating.rank_sets.over)[0]
    message = f"it waits at another elastic function, and the script of rank {over.rank} has ended"
    for member in job.seating.at(job.seating.rank_sets.ready):
        deaths.mark_dead(state, job, member, Failure(Cause.STUCK, message))
        deaths.kill(state, job, member, message)


def _final_saved(state: ClusterState, job: Job, final: int) -> bool:
    """Whether there is nothing more to wait for: the final state is safe, cannot be saved, or took too long.

    The time limit is `final_checkpoint_timeout_s`."""
    in_flight = any(each.stage is not Stage.COPY for each in job.checkpoints.savings.values())
    copying = any(each.stage is Stage.COPY for each in job.checkpoints.savings.values())
    begins = _final_needed(job, final) and not (in_flight or job.checkpoints.final_tried)
    late = _late(job, final, all_of_them=begins)
    if not (in_flight or copying or begins or late):
        return True
    if job.checkpoints.final_by is None:
        job.checkpoints.final_by = state.now + state.settings.final_checkpoint_timeout_s
    if state.now >= job.checkpoints.final_by:
        return True
    state.wake(job, job.checkpoints.final_by)
    for node in dict.fromkeys(mb.node for mb in late):
        # Every rank holds the final state in its own memory, so older snapshots may make room for it.
        state.order(job, ("release", node, str(final)), fx.Release(node, job.name, final))
    if begins and not late:
        job.checkpoints.final_tried = True
        saving.begin(state, job, final)
    return False


def _late(job: Job, final: int, *, all_of_them: bool) -> list[Member]:
    """Return the members that have no snapshot of the final state yet and are waited for.

    For a checkpoint (`all_of_them`) these are all that lack one. Otherwise they are the finished ranks that
    will still take one: after the function has returned, the snapshot is all that is left of the state."""
    if all_of_them:
        return [mb for mb in job.seated() if not mb.status or mb.status.snapshot_step < final]
    if not (job.elastic and job.spec.snapshot_every and final > 0) or skipping.no_room(job):
        return []
    return [mb for mb in job.seated() if mb.status and _is_late(mb.status, final)]


def _is_late(status: MemberStatus, final: int) -> bool:
    return status.phase is MemberPhase.FINISHED and status.state_bytes > 0 and status.snapshot_step < final


def _final_needed(job: Job, final: int) -> bool:
    """Whether the final state should be saved, can be, and is not yet."""
    if not (job.spec.storage and job.elastic and final > 0) or skipping.no_room(job):
        return False
    good = commit.newest_good(job.checkpoints.records.values())
    return good is None or good.step < final


def all_done(job: Job) -> bool:
    """Whether every rank has done its work."""
    return not job.seating.rank_sets.unfinished
