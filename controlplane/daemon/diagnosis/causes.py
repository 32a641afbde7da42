"""Find the first cause of each incident, when the ends of its processes have arrived.

The core decides at once, by what failed. This says a moment later why: agents send the end of each process
with the last lines of its log, and the rules of `holdfast doctor --logs` judge them all together, in a
thread. The result goes to the core (which acts on it only where the policy says so), into the journal, and as
findings into the health report. What arrives later is judged again, a few times at most.

Where the core has the flight records of a break judged (`core/recovery/breaks.py`), that is waited for: the
process that ended may be the victim of a rank that called another collective, and lives.

Nothing of this outlives the leader: the next one knows no ends from before its term."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.analysis.incident_causes import policy
from controlplane.analysis.incident_causes.beats import BeatClocks
from controlplane.core.failures.verdicts import NODE_CAUSES
from controlplane.core.records.diagnosis import CauseFound, RankEnded
from controlplane.core.records.effects import IncidentChanged
from controlplane.core.records.model import Cause
from controlplane.core.records.words import NO_STEP
from controlplane.daemon.etcd.errors import Fenced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.analysis.failure_logs.events import RankAttempt
    from controlplane.analysis.incident_causes.incident import CalledApart, IncidentEnds, JudgedIncident
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.diagnosis import BlamedByRecords
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.core.records.model import Incident
    from controlplane.core.state.findings import Finding
    from controlplane.core.state.inquiries import BreakInquiry

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""How often to look whether an incident can be judged."""
QUIET_S = 0.6
"""An incident is judged when no end has arrived for so long: ranks that die of another one's failure end
within tenths of a second of it, or much later."""
SETTLE_S = 3.0
"""It is judged after so long in any case: agents report an end within a second, or not at all (a lost node,
an older version), and a rank that fails again at once would put it off for ever."""
JUDGED_MOST = 8
"""Judgements of one incident: its ends may go on arriving for as long as its ranks keep failing."""
WAITING_S = 60.0
"""An end that no incident has followed for so long belongs to none: the job was at its end, say."""
_OWN_ENDS = (Cause.RAISED, Cause.EXITED, Cause.SIGNALED)
"""Causes of ranks that ended by themselves."""
HELD_S = 120.0
"""Findings about an incident stay open for so long after it is over, so that people who come can see them."""


@dataclass(slots=True)
class _Open:
    """One incident, from its first report until the job has another one."""

    incident: Incident
    changed: float = 0.0  # when the newest end came
    waits_since: float | None = None  # when the first end came that no judgement knows; None: all are known
    closed: float | None = None
    ends: dict[str, RankEnded] = field(default_factory=dict)  # by member, in the order of their arrival
    unreported: set[str] = field(default_factory=set)  # members whose end only the core knows so far
    blamed: tuple[BlamedByRecords, ...] = ()  # by the flight records, of which a judgement knows
    judged: int = 0
    told: CauseFound | None = None
    attempts: tuple[tuple[int, RankAttempt], ...] = ()
    held: bool = False


class FirstCauses:
    """The first causes of one leader term.

    `post` gives the core an event; `hold(job, findings)` keeps these findings open and no others of their
    kinds; `note(job, error)` says whether its incident could be judged. With the policy "off" everything is
    left out."""

    def __init__(
        self,
        core: Cluster,
        *,
        post: Callable[[Event], None],
        hold: Callable[[str, tuple[Finding, ...]], Awaitable[None]],
        note: Callable[[str, Exception | None], None] = lambda job, error: None,
        judge: Callable[[IncidentEnds], JudgedIncident | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._core, self._post, self._hold, self._clock, self._wall = core, post, hold, clock, wall
        self._note, self._judge = note, judge or _judge
        self._on = core.settings.restart_policy != "off"
        self._incidents: dict[str, _Open] = {}
        self._waiting: dict[str, dict[str, tuple[float, RankEnded]]] = {}  # ends before their incident
        self._lives: dict[str, dict[int, list[RankAttempt]]] = {}
        self._beats = BeatClocks()
        self._wake = asyncio.Event()  # an incident is over: the process may end soon

    def heard(self, node: str, sent_s: float) -> None:
        """Note when an agent sent a message, by its own clock."""
        if self._on:
            self._beats.heard(node, sent_s, self._wall())

    def ended(self, end: RankEnded) -> None:
        """Take the end of a process."""
        if not self._on:
            return
        job = self._core.state.jobs.get(end.job)
        member = job.members.get(end.member) if job is not None else None
        if member is not None and (member.node != end.node or member.rank < 0):
            return  # a spare, or a node that speaks for another one's process
        end = _bounded(end if member is None else dataclasses.replace(end, rank=member.rank))
        if end.rank < 0:
            return
        known = self._incidents.get(end.job)
        late = known is not None and end.generation <= known.incident.generation_before
        if known is not None and (known.closed is None or late):
            if not _is_earlier(end, known.incident):
                self._add(known, end)
            return
        waiting = self._waiting.setdefault(end.job, {})
        if len(waiting) < policy.ENDS_MOST:
            waiting[end.member] = self._clock(), end

    def effect(self, effect: Effect) -> None:
        """Take an effect of the core: incidents begin and end with it."""
        if not (self._on and isinstance(effect, IncidentChanged)):
            return
        incident, now = effect.incident, self._clock()
        known = self._incidents.get(incident.job)
        if known is None or known.incident.id != incident.id:
            if incident.verdict.cause is Cause.RESIZED:
                return  # nothing failed
            if known is not None:
                self._remember(known)
            known = self._incidents[incident.job] = _Open(incident)
            for at, end in self._waiting.pop(incident.job, {}).values():
                if now - at < WAITING_S and not _is_earlier(end, incident):
                    self._add(known, end)
        known.incident = incident
        self._add_unreported(known)
        if incident.outcome != "open" and known.closed is None:
            known.closed = now
            self._wake.set()

    async def run(self) -> None:
        """Judge incidents as their ends arrive, until cancelled."""
        while self._on:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """Judge the incidents that can be judged now. One that cannot be judged is logged and named."""
        self._forget()
        for job, known in list(self._incidents.items()):
            try:
                await self._look_at(job, known)
            except Fenced:
                raise
            except Exception as error:
                log.exception("incident %s/%d: its first cause cannot be judged", job, known.incident.id)
                known.judged = JUDGED_MOST
                self._note(job, error)

    async def _look_at(self, job: str, known: _Open) -> None:
        now = self._clock()
        self._look_at_records(known, now)
        if known.held and known.closed is not None and now - known.closed > HELD_S:
            known.held = False
            await self._hold(job, ())
        if not self._is_due(known, now):
            return
        known.judged, known.waits_since = known.judged + 1, None
        found = await asyncio.to_thread(self._judge, self._ends_of(known))
        self._note(job, None)
        if found is None:
            return
        known.attempts = found.attempts
        if found.cause != known.told:
            known.told = found.cause
            self._post(found.cause)
        if self._incidents.get(job) is known:
            known.held = True
            await self._hold(job, found.findings)

    def _is_due(self, known: _Open, now: float) -> bool:
        if known.waits_since is None or known.judged >= JUDGED_MOST:
            return False
        broke = self._inquiry(known)
        if broke is not None and not broke.judged and now - known.waits_since < SETTLE_S:
            return known.incident.outcome not in ("open", "recovered")
        if (known.closed is not None and not known.judged) or now - known.waits_since >= SETTLE_S:
            return True
        return not known.unreported and now - known.changed >= QUIET_S

    def _inquiry(self, known: _Open) -> BreakInquiry | None:
        """The inquiry into the flight records of the break that this incident began with; None: there is
        none."""
        job = self._core.state.jobs.get(known.incident.job)
        broke = job.recovery.broke if job is not None else None
        return broke if broke is not None and broke.incident == known.incident.id else None

    def _look_at_records(self, known: _Open, now: float) -> None:
        """Have the incident judged again if the flight records blame somebody of whom no judgement knows."""
        broke = self._inquiry(known)
        if broke is not None and broke.blamed != known.blamed:
            known.blamed = broke.blamed
            if known.waits_since is None:
                known.waits_since = now

    def _apart(self, known: _Open) -> list[CalledApart]:
        from controlplane.analysis.incident_causes.incident import CalledApart

        broke, apart = self._inquiry(known), list[CalledApart]()
        if broke is None:
            return apart
        for each in known.blamed:
            node, standing = broke.standing_of(each.rank) or ("", None)
            step = standing.step if standing is not None else NO_STEP
            apart.append(CalledApart(each.rank, node, step, each.reason))
        return apart

    def _add(self, known: _Open, end: RankEnded) -> None:
        if len(known.ends) < policy.ENDS_MOST or end.member in known.ends:
            known.unreported.discard(end.member)
            self._take(known, end)

    def _take(self, known: _Open, end: RankEnded) -> None:
        known.ends[end.member] = end
        known.changed = self._clock()
        if known.waits_since is None:
            known.waits_since = known.changed

    def _remember(self, known: _Open) -> None:
        """Keep how the processes of this incident ended, to recognise it when it comes again."""
        lives = self._lives.setdefault(known.incident.job, {})
        for rank, attempt in known.attempts:
            lives[rank] = [*lives.get(rank, []), attempt][-policy.LIVES_KEPT :]

    def _ends_of(self, known: _Open) -> IncidentEnds:
        from controlplane.analysis.incident_causes.incident import IncidentEnds

        incident = known.incident
        verdict = incident.verdict
        ends = list(known.ends.values())
        lost = list[tuple[int, str, str]]()
        if verdict.cause in NODE_CAUSES:
            present = frozenset(end.rank for end in ends)
            reason = verdict.evidence[0] if verdict.evidence else verdict.cause.value
            node = verdict.nodes[0] if verdict.nodes else ""
            lost = [(rank, node, reason) for rank in verdict.ranks if rank not in present]
        earlier = {rank: tuple(each) for rank, each in self._lives.get(incident.job, {}).items()}
        clocks, apart = self._beats.offsets(), self._apart(known)
        return IncidentEnds(incident.job, incident.id, ends, lost, earlier, clocks, apart)

    def _add_unreported(self, known: _Open) -> None:
        """Add the ends of dead ranks of which only the core knows so far: what their agents said of them."""
        job = self._core.state.jobs.get(known.incident.job)
        for name in known.incident.verdict.members:
            member = job.members.get(name) if job is not None else None
            failure = member.failure if member is not None else None
            if member is None or failure is None or name in known.ends or failure.cause not in _OWN_ENDS:
                continue
            if failure.cause is Cause.EXITED and failure.exit_code is None:
                continue
            known.unreported.add(name)
            self._take(
                known,
                RankEnded(
                    node=member.node,
                    incarnation=0,
                    job=member.job,
                    member=name,
                    rank=member.rank,
                    step=failure.step,
                    exit_code=failure.exit_code if failure.exit_code is not None else 1,
                    signal=failure.signal,
                    text=failure.traceback or failure.message,
                ),
            )

    def _forget(self) -> None:
        """Forget jobs that are gone, and nodes."""
        state = self._core.state
        self._beats.forget(frozenset(state.nodes))
        for memory in (self._incidents, self._waiting, self._lives):
            for job in [name for name in memory if name not in state.jobs]:
                del memory[job]


def _is_earlier(end: RankEnded, incident: Incident) -> bool:
    """Whether a process ended in an incident before this one: agents tell the next leader, and on a new
    stream, what may not have been taken."""
    return 0 < end.generation < incident.generation_before and end.member not in incident.verdict.members


def _bounded(end: RankEnded) -> RankEnded:
    """An end without more text than an agent of ours sends: a message may hold far more."""
    return dataclasses.replace(
        end,
        text=end.text[-policy.TEXT_CHARS :],
        kernel_text=end.kernel_text[-policy.KERNEL_CHARS :],
        ordered=end.ordered[: policy.NAME_CHARS],
        log=end.log[: policy.NAME_CHARS],
        cgroup=end.cgroup[: policy.NAME_CHARS],
        no_text=end.no_text[: policy.NAME_CHARS],
    )


def _judge(known: IncidentEnds) -> JudgedIncident | None:
    """Judge, in a thread. The rules are imported when there is something to judge."""
    from controlplane.analysis.incident_causes.incident import judged

    return judged(known)
