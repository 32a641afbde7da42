"""Act on replicas of the state that differ: mark the states, or go back before them, by the job's policy.

The ranks compared what had been equal (`holdfast.agreement.replica_check`). Since the last comparison in
which all agreed, damage has reached everybody through the gradients. So nothing that was computed since is
trusted on any rank: not the living state, no snapshot, no checkpoint. The state of that comparison is. The
job goes back to it or to an older one, like after a numeric anomaly, and the ranks that differ from the
majority are replaced, on another device if there is one. Where that is only reported, the job trains on: the
states until all agree again are marked as suspect (`suspect_states`). Buffers are never acted on: a script
may change them on one rank alone.

A report may come late: when its generation is over, the next one is chosen, on its way into etcd, or trains
already. What descends from the states in question is distrusted with them, and a generation that began with
such a state is not formed, or goes back as soon as etcd holds it (`numeric_faults.owed`). One that began
before them goes on.

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
from controlplane.core.records.model import Cause, Failure, Fault, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.concerns import ReplicaDispute
from holdfast.ipc.messages.replicas import RUNNING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Placement
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


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
    late = event.generation != job.generation.number or job.phase not in numeric_faults.RUNS
    if late and not (_acts(job, event) and event.generation in job.generations.known):
        state.drop(NoteKind.STALE_FAULT, event.member, f"generation {event.generation} is over already")
        if event.generation in job.generations.known:
            _suspect(state, job, event)  # its states may still be restored
        return
    if event.generation != job.generation.number:
        # Nobody is replaced: who sat where?
        if numeric_faults.distrust(state, job, _fault(event), described(event)):
            state.note(NoteKind.STATE_CORRUPT, job.name, described(event))
        return
    if not event.ranks:
        newest, job.numbers.agreed = job.numbers.agreed, event
        _suspect(state, job, event)
        if event.uncovered and (newest is None or newest.uncovered != event.uncovered):
            state.note(NoteKind.STATE_UNCOVERED, job.name, f"no replica of {', '.join(event.uncovered)}")
        return
    seats = job.generation.seats
    if any(not 0 <= rank < len(seats) for rank in (*event.ranks, *event.odd_ranks)):
        state.drop(NoteKind.STRAY_FAULT, event.member, f"the job has the ranks 0 to {len(seats) - 1}")
        return
    _differ(state, job, event, seats)


def _acts(job: Job, event: ev.ReplicasReported) -> bool:
    """Whether replicas differ, and the job is to act on that."""
    return bool(event.ranks) and job.spec.on_corrupt_state == "act" and not event.buffers


def _fault(event: ev.ReplicasReported, *, stop: bool = False) -> Fault:
    return Fault(event.agreed_step + 1, event.generation, stop, corrupt=True)


def _differ(state: ClusterState, job: Job, event: ev.ReplicasReported, places: tuple[Placement, ...]) -> None:
    """Replicas differ. Distrust what was computed since, and act: at once, or when the replay is over.

    `places`: the seats of the ranks that compared, by rank."""
    before = job.numbers.dispute
    known = before is not None and _when(before.report) == _when(event)
    seats = _to_blame(job, event, places)
    acts = _acts(job, event)
    answer = step_replays.judge(
        event.replay,
        event.passes,
        len(places),
        event.odd_ranks,
        elsewhere=before is not None and _moved(before, event, seats),
    )
    replays = event.replay == RUNNING and job.phase in numeric_faults.RUNS  # else it will not end
    awaits = acts and replays and answer.origin is not Origin.SOFTWARE
    first = all(fault.generation != event.generation for fault in job.numbers.faults)
    job.numbers.dispute = ReplicaDispute(event, seats, answer, awaits)
    if not known:
        state.note(NoteKind.STATE_CORRUPT, job.name, described(event))
    if not awaits and event.replay:
        words = step_replays.WORDS.get(answer.why, answer.why)
        state.note(NoteKind.STATE_JUDGED, job.name, f"{answer.origin}: {words}")
    if acts:
        fault = _fault(event, stop=answer.origin is Origin.SOFTWARE)
        numeric_faults.distrust(state, job, fault, described(event))
    if acts and not awaits and (first or (known and before is not None and before.awaits)):
        _act(state, job, event)
    elif not acts:
        _suspect(state, job, event)


def _to_blame(job: Job, event: ev.ReplicasReported, places: Sequence[Placement]) -> tuple[Placement, ...]:
    """The seats of the odd ranks; none where these hold different parts of the state.

    Ranks that share a replica exchange what they compute before the optimizer's step (addends of a tensor
    group, the norm by which gradients are clipped): one damaged gradient is in the state of all of them."""
    odd = tuple(seat for seat in places if seat.rank in event.odd_ranks)
    parts = {job.restore.shards.get(seat.rank, "") for seat in odd}
    return odd if len(parts) <= 1 else ()


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
    state.store(f"job/{job.name}", fx.StoreJob(job.name, job.kept()))
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


def _act(state: ClusterState, job: Job, event: ev.ReplicasReported) -> None:
    """Replace the ranks to blame and go back; or stop, if the script itself makes the replicas differ.

    If the ranks have stopped already, all of them go back without further evidence: the next state is still
    to be chosen, or `numeric_faults.owed` sees that the one on its way into etcd is not trusted."""
    dispute = job.numbers.dispute
    assert dispute is not None
    if job.phase is JobPhase.LEAVING or _is_launched(job):
        return
    answer, words = dispute.answer, described(event)
    if answer.why != step_replays.UNTRIED:
        words = f"{words}; {answer.origin}: {step_replays.WORDS.get(answer.why, answer.why)}"
    odd_ranks = tuple(seat.rank for seat in dispute.odd_seats)
    blamed = answer.ranks if answer.origin is Origin.HARDWARE else odd_ranks
    odd = [] if answer.origin is Origin.SOFTWARE else _still_seated(job, blamed)
    if not odd and answer.origin is not Origin.SOFTWARE and job.phase not in numeric_faults.RUNS:
        return
    job.numbers.on_fault = "stop" if answer.origin is Origin.SOFTWARE else "rollback"
    failure = Failure(Cause.FAULT, f"{CORRUPT_STATE}: {words}", step=event.step, exception=CORRUPT_STATE)
    if not odd:
        job.recovery.unjudged.append(Evidence(state.now, failure))
    for seat, member in odd:
        device_deaths.exclude(state, job, seat.node, seat.local_rank, words)
        deaths.mark_dead(state, job, member, failure)
        deaths.kill(state, job, member, failure.message)
    state.touch(job)


def _is_launched(job: Job) -> bool:
    """Whether all ranks are being launched anew: none of those that compared is left."""
    storing = job.generations.storing
    return job.phase in (JobPhase.PENDING, JobPhase.LAUNCHING) or (storing is not None and not storing.store)


def _still_seated(job: Job, ranks: Collection[int]) -> list[tuple[Placement, Member]]:
    """Of these ranks of the newest generation: those whose processes live in seats of the job."""
    seats = job.generation.seats if job.generation is not None else ()
    found = [(seat, job.members.get(seat.member)) for seat in seats if seat.rank in ranks]
    return [(s, mb) for s, mb in found if mb is not None and not mb.dead and job.seating.holds(mb)]
