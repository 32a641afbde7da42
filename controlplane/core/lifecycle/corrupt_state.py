"""Act on replicas of the state that differ: mark the states, or go back before them, by the job's policy.

The ranks compared what had been equal (`holdfast.agreement.replica_check`). Since the last comparison in
which all agreed, damage has reached everybody through the gradients. So nothing that was computed since is
trusted on any rank: not the living state, no snapshot, no checkpoint. The state of that comparison is. The
job goes back to it or to an older one, like after a numeric anomaly, and the ranks that differ from the
majority are replaced, on another device if there is one. Where that is only reported, the job trains on: the
states until all agree again are marked as suspect (`suspect_states`). Buffers are never acted on: a script
may change them on one rank alone.

Where the script declares its step as a function, the ranks first run the steps since again
(`holdfast.replay`). Until they report what that gave, nothing is done but to distrust. If the script itself
makes the replicas differ, going back would only do it again: the job stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, step_replays, suspect_states
from controlplane.core.failures.blame import CORRUPT_STATE
from controlplane.core.lifecycle import numeric_faults
from controlplane.core.placement import device_deaths
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence, Origin
from controlplane.core.records.model import Cause, Failure, Fault
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.concerns import ReplicaDispute
from holdfast.ipc.messages.replicas import RUNNING

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Placement
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def compared(state: ClusterState, event: ev.ReplicasReported) -> None:
    """Take a report of ranks that have compared their replicas, and act on it by the job's policy."""
    job = state.jobs.get(event.job)
    if job is None or job.ended or job.ending is not None or job.generation is None:
        state.drop(NoteKind.STALE_FAULT, event.member, f"job {event.job} does not run here")
        return
    before = job.numbers.dispute
    ends = before is not None and before.awaits and event.replay != RUNNING
    if event.ranks and before is not None and _when(before.report) == _when(event) and not ends:
        return  # another rank's report of the same
    if event.generation != job.generation.number or job.phase not in numeric_faults.RUNS:
        state.drop(NoteKind.STALE_FAULT, event.member, f"generation {event.generation} is over already")
        if event.generation in job.generations.known:
            _suspect(state, job, event)  # its states may still be restored
        return
    if not event.ranks:
        newest, job.numbers.agreed = job.numbers.agreed, event
        _suspect(state, job, event)
        if event.uncovered and (newest is None or newest.uncovered != event.uncovered):
            state.note(NoteKind.STATE_UNCOVERED, job.name, f"no replica of {', '.join(event.uncovered)}")
        return
    if any(not 0 <= rank < len(job.seats) for rank in (*event.ranks, *event.odd_ranks)):
        state.drop(NoteKind.STRAY_FAULT, event.member, f"the job has the ranks 0 to {len(job.seats) - 1}")
        return
    _differ(state, job, event)


def _differ(state: ClusterState, job: Job, event: ev.ReplicasReported) -> None:
    """Replicas differ. Distrust what was computed since, and act: at once, or when the replay is over."""
    before = job.numbers.dispute
    known = before is not None and _when(before.report) == _when(event)
    seats = tuple(seat for seat in job.seats if seat.rank in event.odd_ranks)
    acts = job.spec.on_corrupt_state == "act" and not event.buffers
    answer = step_replays.judge(
        event.replay,
        event.passes,
        len(job.seats),
        event.odd_ranks,
        elsewhere=before is not None and _moved(before, event, seats),
    )
    awaits = acts and event.replay == RUNNING and answer.origin is not Origin.SOFTWARE
    first = all(fault.generation != event.generation for fault in job.numbers.faults)
    job.numbers.dispute = ReplicaDispute(event, seats, answer, awaits)
    if not known:
        state.note(NoteKind.STATE_CORRUPT, job.name, described(event))
    if not awaits and event.replay:
        words = step_replays.WORDS.get(answer.why, answer.why)
        state.note(NoteKind.STATE_JUDGED, job.name, f"{answer.origin}: {words}")
    if acts:
        fault = Fault(
            event.agreed_step + 1, event.generation, stop=answer.origin is Origin.SOFTWARE, corrupt=True
        )
        _distrust(state, job, fault, described(event))
    if acts and not awaits and (first or (known and before is not None and before.awaits)):
        _act(state, job, event)
    elif not acts:
        _suspect(state, job, event)


def _suspect(state: ClusterState, job: Job, event: ev.ReplicasReported) -> None:
    """Bring the windows of suspect states up to date, in etcd, too. Checkpoints in them are marked next."""
    windows = job.numbers.suspect_states
    if not event.ranks:
        if suspect_states.settles(job, event):
            windows = suspect_states.agreed(windows, event.generation, event.step)
    elif job.spec.on_corrupt_state != "act" and not event.buffers:
        windows = suspect_states.differed(job, event)
    if windows == job.numbers.suspect_states:
        return
    job.numbers.suspect_states = windows
    state.store(f"job/{job.name}", fx.StoreJob(job.name, job.state()))
    job.restore.restoring = None  # what was chosen may have become suspect
    state.touch(job)


def overtaken(state: ClusterState, job: Job) -> None:
    """Something else has failed. If ranks are in a replay, it will not end: act as without one."""
    dispute, generation = job.numbers.dispute, job.generation
    if dispute is None or not dispute.awaits:
        return
    job.numbers.dispute = replace(dispute, awaits=False)
    if generation is not None and generation.number == dispute.report.generation:
        _act(state, job, dispute.report)


def _moved(before: ReplicaDispute, event: ev.ReplicasReported, seats: tuple[Placement, ...]) -> bool:
    """Whether the same ranks differed at the same step in an earlier generation, each on another device."""
    if _when(before.report) == _when(event):
        return before.answer.why == step_replays.ELSEWHERE
    if before.report.generation >= event.generation or before.report.step != event.step or not seats:
        return False
    places = {seat.rank: (seat.node, seat.local_rank) for seat in before.odd_seats}
    now = {seat.rank: (seat.node, seat.local_rank) for seat in seats}
    return places.keys() == now.keys() and all(places[rank] != now[rank] for rank in now)


def _when(event: ev.ReplicasReported) -> tuple[int, int]:
    return event.generation, event.step


def described(event: ev.ReplicasReported) -> str:
    """What differs, between whom, and since when."""
    what = ", ".join(event.tensors) or "their state"
    more = f" and {event.more} more" if event.more else ""
    since = f"with {event.step} steps completed; all held the same with {event.agreed_step}"
    if event.odd_ranks:
        plural = "s" if len(event.odd_ranks) > 1 else ""
        odd = ", ".join(map(str, event.odd_ranks))
        return f"rank{plural} {odd} of {len(event.ranks)} replicas differ in {what}{more}, {since}"
    return f"ranks {', '.join(map(str, event.ranks))} differ in {what}{more}, and have no majority, {since}"


def _distrust(state: ClusterState, job: Job, fault: Fault, words: str) -> None:
    if fault not in job.numbers.faults:
        numeric_faults.distrust(state, job, fault, words)
        state.store(f"job/{job.name}", fx.StoreJob(job.name, job.state()))


def _act(state: ClusterState, job: Job, event: ev.ReplicasReported) -> None:
    """Replace the ranks to blame and go back; or stop, if the script itself makes the replicas differ."""
    dispute = job.numbers.dispute
    assert dispute is not None
    answer, words = dispute.answer, described(event)
    if answer.why != step_replays.UNTRIED:
        words = f"{words}; {answer.origin}: {step_replays.WORDS.get(answer.why, answer.why)}"
    job.numbers.on_fault = "stop" if answer.origin is Origin.SOFTWARE else "rollback"
    failure = Failure(Cause.FAULT, f"{CORRUPT_STATE}: {words}", step=event.step, exception=CORRUPT_STATE)
    blamed = answer.ranks if answer.origin is Origin.HARDWARE else event.odd_ranks
    odd = [member for member in job.seated() if member.rank in blamed and not member.dead]
    if not odd or answer.origin is Origin.SOFTWARE:
        job.recovery.unjudged.append(Evidence(state.now, failure))
        odd = []
    for member in odd:
        device_deaths.exclude(state, job, member.node, job.seats[member.rank].local_rank, words)
        deaths.mark_dead(state, job, member, failure)
        deaths.kill(state, job, member, failure.message)
    state.touch(job)
