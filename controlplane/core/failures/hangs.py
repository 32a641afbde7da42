"""Resolve a hang: collect stack reports of all ranks, find the rank that the others wait for, replace it.

Agents report when a rank is past its own deadline. That alone convicts no rank: most of them wait for
another one. The rank that they wait for is replaced once it is past its own deadline, too, because slow is
not hung. Whoever the first reports accuse is read a second time: what has moved is not blamed. If the same
step hangs again, more is replaced each time: `_LEVELS`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import arrivals, deaths, flight_verdicts
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Cause, Failure, JobPhase, MemberPhase, Standing
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.inquiries import HangInquiry, SecondReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Generation
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

STACKS_BYTES_MAX = 256 * 1024
"""Limit for the stacks in one node's answer."""

STACKS_BYTES_ALL = 64 * 1024 * 1024
"""Limit for all answers together: with many nodes, each may send less."""

STACKS_BYTES_MIN = 2048
"""Each node may send this much, however many there are."""
TRACE_CHARS = 6000
"""Limit for the stacks in a failure, which may become the reason of a job's end."""


def reconcile(state: ClusterState, job: Job) -> None:
    """Drive the inquiry into a generation in which a rank is past its deadline, until it is clear who is
    to blame."""
    if not job.recovery.stalled and job.recovery.hang is None:
        return
    generation = job.generation
    stalled = _stalled(job, generation) if generation is not None else ()
    if generation is None or job.phase is not JobPhase.RUNNING or job.recovery.unjudged or not stalled:
        job.recovery.hang = None
        return
    if job.recovery.hang is None or job.recovery.hang.generation != generation.number:
        job.recovery.hang = HangInquiry(generation.number, state.now + state.settings.stall_settle_s)
    look = job.recovery.hang
    if not look.round and not _ask(state, job, look, stalled):
        return
    silent = [node for node in job.seat_nodes() if node not in look.answers and state.up(node)]
    if silent and state.now < look.until:
        state.wake(job, look.until)
        return
    reports = _reports(job, look.answers)
    if (look.second is not None or _accuses(reports)) and _reads_again(state, job, look, reports):
        return
    if flight_verdicts.is_waited_for(state, job, look, reports):
        return
    _judge(state, job, look, stalled)


def _stalled(job: Job, generation: Generation) -> tuple[str, ...]:
    """Names of the seated members that train and are past their deadlines."""
    return tuple(mb.name for mb in job.seated() if mb.name in job.recovery.stalled and _runs(mb, generation))


def _runs(member: Member, generation: Generation) -> bool:
    status = member.status
    return (
        status is not None
        and not member.dead
        and status.phase is MemberPhase.RUNNING
        and status.generation == generation.number
    )


def _ask(state: ClusterState, job: Job, look: HangInquiry, stalled: tuple[str, ...]) -> bool:
    """Order stack reports from all nodes. False: it is too early, or no further rank is late since the
    last round."""
    if stalled == look.judged:
        return False
    if state.now < look.begin_at:
        state.wake(job, look.begin_at)
        return False
    job.recovery.hang_rounds += 1
    look.round, look.until, look.answers = (
        job.recovery.hang_rounds,
        state.now + state.settings.stacks_timeout_s,
        {},
    )
    look.second, look.records_by, look.records = None, 0.0, None
    _order(state, job, look, look.round)
    return True


def _accuses(reports: Sequence[Standing]) -> bool:
    """Whether the first reading may blame somebody: by flight records, or by where they stand."""
    if any(s.flight_record for s in reports):
        return True
    named = arrivals.find(reports).ranks if len(reports) > 1 else ()
    return any(s.stalled for s in reports if s.rank in named)


def _reads_again(state: ClusterState, job: Job, look: HangInquiry, reports: Sequence[Standing]) -> bool:
    """Whether the second reading is under way. Orders it first.

    Ranks are read at different moments. A rank that was read first seems to lack what a peer has completed
    since; only a reading that begins after all others are there shows whether it still does."""
    if look.second is None:
        look.second = SecondReading(state.now + state.settings.records_apart_s)
    second = look.second
    if not second.round and state.now < second.begin_at:
        state.wake(job, second.begin_at)
        return True
    if not second.round:
        job.recovery.hang_rounds += 1
        second.round, second.until = job.recovery.hang_rounds, state.now + state.settings.stacks_timeout_s
        recorded = any(s.flight_record for s in reports)
        _order(state, job, look, second.round, None if recorded else STACKS_BYTES_MIN)
    silent = [node for node in job.seat_nodes() if node not in second.answers and state.up(node)]
    if silent and state.now < second.until:
        state.wake(job, second.until)
        return True
    return False


def _order(
    state: ClusterState, job: Job, look: HangInquiry, number: int, bytes_max: int | None = None
) -> None:
    """Order the reports of this round from all nodes.

    `bytes_max`: of a reading of which only the frames are wanted, beside what the ranks have called."""
    nodes = job.seat_nodes()
    for node in nodes:
        if state.up(node):
            size = bytes_max or room(len(nodes))
            state.emit(fx.CollectStacks(node, job.name, look.generation, number, size))


def room(nodes: int) -> int:
    """How many bytes of stacks each of so many nodes may send, and of flight records."""
    return max(STACKS_BYTES_MIN, min(STACKS_BYTES_MAX, STACKS_BYTES_ALL // nodes))


def collected(state: ClusterState, event: ev.StacksCollected) -> None:
    """Take the stack reports of one node."""
    job = state.jobs.get(event.job)
    look = job.recovery.hang if job is not None else None
    if job is not None and look is not None and event.round:
        for reading in (look, look.second):
            if reading is not None and reading.round == event.round:
                reading.answers[event.node] = event.ranks
                state.touch(job)
                return
    state.drop(NoteKind.STALE_STACKS, event.node, f"nobody waits for stacks of round {event.round}")


def _judge(state: ClusterState, job: Job, look: HangInquiry, stalled: tuple[str, ...]) -> None:
    """Blame the ranks that are waited for and past their deadlines; otherwise wait for a further round.

    When no rank is behind the others, all must be past their deadlines before they are blamed together."""
    found = _reports(job, look.answers)
    again = _again(job, look)
    finding = flight_verdicts.weigh(found, look.records, again)
    over = {s.member for s in again or () if not s.stalled}  # it has made a mark since
    late = [s.rank for s in found if s.stalled and s.member not in over]
    named = [rank for rank in finding.ranks if rank in late]
    if (finding.ranks and not named) or (not finding.ranks and len(late) < len(found)):
        _wait(state, job, look, stalled, finding)
        return
    job.recovery.hang = None
    _blame(state, job, found, named, finding.reason)


def _reports(job: Job, answers: Mapping[str, Sequence[Standing]]) -> list[Standing]:
    """Where each rank stands that has not finished: its stack report, else what its status shows.

    A rank that became late after its node had answered counts as late, unless it has made a step since."""
    reported = {s.member: s for ranks in answers.values() for s in ranks}
    found = []
    for member in job.seated():
        if not member.done and member.status is not None:
            report = reported.get(member.name) or _from_status(member)
            late = member.name in job.recovery.stalled and report.step == member.status.step
            found.append(dataclasses.replace(report, stalled=report.stalled or late))
    return found


def _again(job: Job, look: HangInquiry) -> list[Standing] | None:
    """The second reading; of ranks whose reports came both times, or neither time. None: there was none."""
    if look.second is None:
        return None
    once, twice = (
        {s.member for ranks in answers.values() for s in ranks}
        for answers in (look.answers, look.second.answers)
    )
    return [s for s in _reports(job, look.second.answers) if s.member in twice or s.member not in once]


def _from_status(member: Member) -> Standing:
    status = member.status
    if status is None:
        raise AssertionError(f"{member.name} has no status")
    stalled = status.stalled_s > 0
    return Standing(member.name, member.rank, status.step, status.activity, status.stalled_s, stalled)


def _wait(
    state: ClusterState,
    job: Job,
    look: HangInquiry,
    stalled: tuple[str, ...],
    finding: arrivals.ArrivalFinding,
) -> None:
    """Wait: the rank that the others wait for is within its own deadline, or no rank is behind and not all
    are late."""
    look.judged, look.round, look.begin_at = stalled, 0, state.now + state.settings.stall_settle_s
    whom = f"rank {finding.ranks[0]} is not past its own deadline yet" if finding.ranks else finding.reason
    state.note(NoteKind.STALLED, job.name, f"{len(stalled)} ranks are past their deadlines: {whom}")


def _blame(
    state: ClusterState, job: Job, found: Sequence[Standing], named: Sequence[int], reason: str
) -> None:
    first = next((s for s in found if s.rank in named), max(found, key=lambda s: s.since_s))
    level = min(job.recovery.failures_seen.get(f"{Cause.HUNG}@{first.step}", 0), len(_LEVELS) - 1)
    hit = _LEVELS[level](job, named)
    summary = f"rank {first.rank} hung {arrivals.described(first)}"
    again = f" ({_AGAIN[level]})" if _AGAIN[level] and hit else ""
    message = f"{arrivals.described(first)}: {reason}{again}" if named else f"all ranks hung: {reason}{again}"
    state.emit(
        fx.StacksKept(job.name, job.generations.number, first.step, f"{summary}: {reason}", tuple(found))
    )
    trace = _trace(found, named)
    if not hit:
        failure = Failure(Cause.HUNG, message, step=first.step, traceback=trace, age_s=first.since_s)
        job.recovery.unjudged.append(Evidence(state.now, failure))
        state.touch(job)
        return
    for member in hit:
        guilty = member.rank in named or not named
        words = f"hung {message}" if guilty else f"replaced with it: {summary}"
        age_s = first.since_s if guilty else 0.0
        failure = Failure(Cause.HUNG, words, step=first.step, traceback=trace, age_s=age_s)
        deaths.mark_dead(state, job, member, failure)
        deaths.kill(state, job, member, words)


def _trace(found: Sequence[Standing], named: Sequence[int]) -> str:
    """The stacks of up to four ranks that are blamed, or of any when none is; short enough for a reason."""
    shown = [s for s in found if s.rank in named] or list(found)
    parts = [f"rank {s.rank} ({s.member}), {arrivals.described(s)}:\n{s.stacks}" for s in shown[:4]]
    return "\n".join(part[: TRACE_CHARS // len(parts)] for part in parts)


def _named(job: Job, named: Sequence[int]) -> list[Member]:
    return [mb for mb in job.seated() if mb.rank in named]


def _their_nodes(job: Job, named: Sequence[int]) -> list[Member]:
    nodes = {mb.node for mb in _named(job, named)}
    return [mb for mb in job.seated() if mb.node in nodes]


def _all(job: Job, named: Sequence[int]) -> list[Member]:
    return [mb for mb in job.seated() if not mb.done]


_LEVELS: tuple[Callable[[Job, Sequence[int]], list[Member]], ...] = (
    _named,
    lambda job, named: _named(job, named) or _all(job, named),
    lambda job, named: _their_nodes(job, named) or _all(job, named),
    _all,
)
"""Who is replaced when this step hangs for the first time, the second, and so on. When no rank can be
blamed, the first time replaces nobody: all ranks form again."""

_AGAIN = ("", "again at this step", "again at this step: its node's ranks with it", "again: all ranks")
