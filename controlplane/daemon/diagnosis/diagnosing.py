"""Judge the running jobs every few seconds, and keep what is found over changes of leader.

`feed` collects what agents report; the detectors (`controlplane.analysis.live`) judge it in a thread, so that
the loop of the leader does not wait for them; the ledger (`controlplane.analysis.findings_ledger`) opens and
resolves what they find. The core hears only which findings are open, and only when that changes: recordings
stay small, and health, alerts, page and commands have one source."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from controlplane.analysis import replicas, small_kernels
from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.findings_ledger.policy import FIRST_FAILURE, NOTICES
from controlplane.analysis.guarding import PartGuard, failed_part
from controlplane.analysis.live.eta import Eta
from controlplane.core.elasticity import slow_policy
from controlplane.core.records.diagnosis import Diagnosed, OpenFinding, StepTimes
from controlplane.core.records.model import JobPhase
from controlplane.core.records.node_checks import NodeSensed
from controlplane.core.records.timing import OFF
from controlplane.daemon.diagnosis import eta, report
from controlplane.daemon.diagnosis.failed_parts import FailedParts
from controlplane.daemon.diagnosis.feed import CollectedReports, StepFeed, signs, window_s
from controlplane.daemon.diagnosis.job_memory import JobMemory
from controlplane.daemon.diagnosis.sensed import SensedNodes
from controlplane.daemon.diagnosis.silences import TelemetrySilence
from controlplane.daemon.etcd.errors import Fenced
from controlplane.diagnosis_settings import thresholds
from controlplane.reporting.dates import dated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from controlplane.analysis.findings_ledger.entries import LedgerEntry
    from controlplane.analysis.findings_ledger.ledger import FindingChange
    from controlplane.analysis.live.efficiency import Efficiency
    from controlplane.analysis.live.numbers import NumberSummary
    from controlplane.analysis.live.readings import JobWindow
    from controlplane.analysis.live.slow_steps import SlowStepMemory
    from controlplane.analysis.live.watch import LiveDiagnosis
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.diagnosis import GradientReport, LinksProbed, RankProfiled
    from controlplane.core.records.events import Event
    from controlplane.core.state.findings import Finding
    from controlplane.core.state.job import Job
    from controlplane.daemon.diagnosis.link_probes import LinkProbes
    from controlplane.daemon.telemetry.job_time import Account
    from controlplane.diagnosis_settings import DiagnosisSettings

log = logging.getLogger(__name__)

WATCHED = (JobPhase.RUNNING, JobPhase.FORMING)
"""Phases in which a job's steps are judged."""


def _steady() -> Callable[[], float]:
    """A clock that shows Unix time and never goes back, as the machine's may when it is set."""
    ahead_s = time.time() - time.monotonic()
    return lambda: ahead_s + time.monotonic()


class Diagnosis:
    """Diagnoses the jobs of one leader term.

    `ledger`: as the last leader kept it. `post` gives the core an event. `write(type, body)` writes a line
    of the journal. `show(job, shares, slowdown_ratio)`, `show_numbers(job, numbers)` and `achieve(job,
    efficiency)` set metrics, and so does `show_failed(job, count)`, by how many parts of its diagnosis raised
    an error; `lose(job, lost_s)` enters into its account what its steps lost, by cause;
    `account` returns that account. `keep` writes the ledger to etcd. `probes`: who has links probed; None:
    nobody."""

    def __init__(
        self,
        core: Cluster,
        ledger: FindingLedger,
        settings: DiagnosisSettings,
        *,
        post: Callable[[Event], None],
        write: Callable[[str, dict[str, Any]], None],
        show: Callable[[str, Mapping[str, float], float], None],
        probes: LinkProbes | None = None,
        lose: Callable[[str, Mapping[str, float]], None] = lambda _job, _lost_s: None,
        achieve: Callable[[str, Efficiency], None] = lambda _job, _efficiency: None,
        show_eta: Callable[[str, float | None], None] = lambda _job, _eta_s: None,
        account: Callable[[str], Account | None] = lambda _job: None,
        show_numbers: Callable[[str, NumberSummary], None] = lambda job, numbers: None,
        show_failed: Callable[[str, int], None] = lambda job, count: None,
        keep: Callable[[], Awaitable[None]] | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self.ledger, self.every_s = ledger, settings.diagnose_every_s
        self._thresholds = thresholds(settings)
        self._core, self._post, self._write, self._wall = core, post, write, wall or _steady()
        self._show, self._show_numbers, self._keep = show, show_numbers, keep
        self._probes = probes if settings.link_probes else None
        self._lose, self._achieve, self._account = lose, achieve, account
        self._show_eta = show_eta
        self._feed, self._silences, self._sensed = StepFeed(), TelemetrySilence(), SensedNodes()
        self._jobs: defaultdict[str, JobMemory] = defaultdict(JobMemory)
        self.failed = FailedParts(show_failed)

    @property
    def window_s(self) -> float:
        """How long a window of steps is at present (s), and how often agents report; 0: never."""
        return window_s(len(self._core.state.nodes), self.every_s)

    def take(self, found: StepTimes | GradientReport | NodeSensed) -> None:
        """Take a report of an agent."""
        if not self.every_s:
            return
        if isinstance(found, StepTimes):
            self._feed.take(found)
            self._silences.take(found, self._wall())
        elif isinstance(found, NodeSensed):
            self._sensed.take(found)
        else:
            self._feed.take_gradients(found)

    def take_probes(self, answer: LinksProbed) -> None:
        """Take what an agent measured on its links."""
        if self._probes is not None:
            self._probes.take(answer, self._wall())

    def take_profile(self, rank: int, found: RankProfiled) -> None:
        """Take the profile of a rank. One that does not show whether kernels are small changes nothing."""
        kernels = small_kernels.of_profile(rank, found, self._thresholds.device_used)
        if self.every_s and kernels.verdict.small is not None:
            self._jobs[found.job].profiled[rank] = kernels

    async def run(self) -> None:
        """Judge all jobs again and again, until cancelled."""
        while self.every_s:
            await asyncio.sleep(self.window_s)
            await self.look()

    async def look(self) -> None:
        """Judge each running job once. What fails is logged and named in the report; the rest is judged."""
        if not self._core.term:
            return  # the core has not read yet which jobs there are
        jobs = self._core.state.jobs
        self._forget({name for name, job in jobs.items() if not job.ended})
        for job in [job for job in jobs.values() if job.phase in WATCHED]:
            guard = PartGuard()
            try:
                await self._look_at(job, guard)
            except Fenced:
                raise
            except Exception as error:
                log.exception("diagnosis of job %s failed: it is not judged now", job.name)
                guard.failed.append(failed_part("window", error))
            self.failed.looked(job.name, self._known(job.name).newest, guard.failed)
        for job in jobs.values():
            at_s = self.eta(job).at_s
            self._show_eta(job.name, None if at_s is None else max(0.0, at_s - self._wall()))
        for name in self.ledger.jobs():
            self._report_open(name)  # also what the last leader had found, and mutes that are over

    async def _look_at(self, job: Job, guard: PartGuard) -> None:
        now_s = self._wall()
        none: list[Finding] = []
        at_once = (  # open for as long as they are reported
            *guard.run(replicas.KIND, lambda: self._corrupt(job), none),
            *guard.run(small_kernels.KIND, lambda: self._small_kernels(job), none),
        )
        changes = self.ledger.report(now_s, job.name, at_once)
        unseen = frozenset(each.name for each in guard.failed)
        collected = self._collected(job, now_s)
        if collected is not None:
            window, found = await asyncio.to_thread(self._judge, collected)
            self._jobs[job.name].newest = found
            self._show_window(window, found, guard)
        if collected is not None and found.judged:
            changes += self._observe(job, found, now_s, unseen)
        else:  # replicas were compared, and ranks profiled, whether or not steps can be judged
            only = (replicas.KIND, small_kernels.KIND)
            changes += self.ledger.observe(now_s, job.name, (), only=only, unseen=unseen)
        await self._tell(changes)

    def _show_window(self, window: JobWindow, found: LiveDiagnosis, guard: PartGuard) -> None:
        """Set the metrics of a job, continue its curves, and enter what its steps lost into its account."""
        job, shares = found.job, {} if found.anatomy is None else found.anatomy.shares()
        memory = self._jobs[job]
        guard.run("curves", lambda: memory.curves.take(found), None)
        self._show(job, shares, found.slowdown)
        self._lose(job, found.lost_s)
        self._achieve(job, found.efficiency)
        if found.numbers is not None:
            self._show_numbers(job, found.numbers)
        guard.run("eta", lambda: memory.take_pace(window, found.pace), None)
        guard.run("slow_steps", lambda: memory.slow_steps.take(window), None)

    def _observe(
        self, job: Job, found: LiveDiagnosis, now_s: float, unseen: frozenset[str]
    ) -> tuple[FindingChange, ...]:
        """Take in what a window that could be judged shows, and have links probed where it asks for that."""
        if self._probes is not None:
            if asked := self._probes.look(job, now_s, suspicious=bool(found.suspicion)):
                self._write("LinksAsked", {"job": job.name, "nodes": asked, "reason": found.suspicion})
        unjudged = set(found.out.nonzero()[0].tolist())
        blind = [name for name in job.seat_nodes() if name not in found.nodes_seen]
        wanted, silent = self._wanted(found.findings), found.silent_stages
        return self.ledger.observe(
            now_s, job.name, wanted, unjudged, blind, unseen=found.unseen | unseen, silent_stages=silent
        )

    def _corrupt(self, job: Job) -> list[Finding]:
        """The findings about replicas that differ, or of whom it was not shown yet that they did."""
        dispute = job.numbers.dispute
        if dispute is None:
            return []
        new = self._known(job.name).dispute is not dispute.report
        self._jobs[job.name].dispute = dispute.report
        return replicas.findings(dispute) if new or replicas.stands(dispute, job.numbers.agreed) else []

    def _small_kernels(self, job: Job) -> list[Finding]:
        """What profiles show of processes that still train. Another process may run another script."""
        seated = {seat.rank: seat.member for seat in job.seats}
        profiles = self._known(job.name).profiled.values()
        found = small_kernels.finding(each for each in profiles if seated.get(each.rank) == each.member)
        return [] if found is None else [found]

    async def _tell(self, changes: Sequence[FindingChange]) -> None:
        if changes and self._keep is not None:
            await self._keep()  # before anybody hears of it: else the next leader would announce it again
        for change in changes:
            self._announce(change)

    def _wanted(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings that are reported, with dates in their words: all but those whose policy is off."""
        settings = self._core.settings
        return [dated(each) for each in findings if slow_policy.response(each.kind).policy(settings) != OFF]

    async def report_now(self, job: str, findings: Sequence[Finding]) -> None:
        """Open findings that rest on a single event, such as a hang: they need no further window. Where
        diagnosis is off, there are none."""
        if not findings or not self.every_s:
            return
        await self._tell(self.ledger.report(self._wall(), job, findings))
        self._report_open(job)

    def _collected(self, job: Job, now_s: float) -> CollectedReports | None:
        """What agents have reported since the last window; None: nothing."""
        nodes = self._core.state.nodes
        domains = {name: nodes[name].domain for name in job.by_node if name in nodes}
        began_s = self._known(job.name).began_s
        found = self._feed.collect(job, domains, now_s - self.window_s if began_s is None else began_s, now_s)
        if found is None:
            return None
        self._jobs[job.name].began_s = now_s
        links = None if self._probes is None else self._probes.matrix(job, now_s)
        state = self._core.state
        silent = self._silences.silent(state, job, now_s)
        known = (
            signs(nodes[name], state, self._sensed.of(nodes[name]), silent.get(name, 0.0)) for name in domains
        )
        signs_known = tuple(each for each in known if each is not None)
        return dataclasses.replace(found, head=found.head | {"links": links, "nodes": signs_known})

    def _judge(self, collected: CollectedReports) -> tuple[JobWindow, LiveDiagnosis]:
        """Add up a window and run the detectors; in a thread. They are imported when there is something to
        judge: a standby that takes over need not wait for them."""
        from controlplane.analysis.live.watch import JobWatch

        window = collected.window()
        memory = self._jobs[window.job]
        if memory.watch is None:
            memory.watch = JobWatch(self._thresholds)
        return window, memory.watch.observe(window)

    def _announce(self, change: FindingChange) -> None:
        finding, shown = change.entry.finding, report.row(change.entry, self._wall())
        self._write("FindingChanged", {"job": finding.job, "outcome": change.kind.value, **shown})
        quiet = change.kind is ChangeKind.RESOLVED or finding.kind in NOTICES
        level = logging.INFO if quiet else logging.WARNING
        log.log(level, "job %s: %s %s: %s", finding.job, finding.kind, change.kind.value, finding.reason)

    async def hold(self, job: str, findings: tuple[Finding, ...]) -> None:
        """Keep these findings about an incident open, and resolve others of their kinds. Where diagnosis is
        off, there are none."""
        if not self.every_s:
            return
        await self._tell(self.ledger.hold(self._wall(), job, findings))
        self._report_open(job)

    def _report_open(self, job: str) -> None:
        """Tell the core which findings about a job are open, if that has changed.

        Notices are shown, and are no ill health; nor is who failed first: the incident was resolved, or the
        job has ended."""
        shown = {FIRST_FAILURE, *NOTICES}
        known = [each for each in self.ledger.open(job) if each.finding.kind not in shown]
        found = tuple(self._open(each) for each in known)
        if self._known(job).reported != found:
            self._jobs[job].reported = found
            self._post(Diagnosed(job, found))

    def _open(self, entry: LedgerEntry) -> OpenFinding:
        finding = entry.finding
        node = dict(finding.place).get("node")
        return OpenFinding(
            kind=finding.kind,
            level=finding.level.value,
            subject=finding.subject,
            reason=finding.reason,
            node=str(node or ""),
            muted=entry.muted(self._wall()),
            lasting=self.ledger.lasting(finding.job, entry.identity),
        )

    def _known(self, job: str) -> JobMemory:
        """What is remembered of a job, to be read only: of another one nothing is, and nothing will be."""
        return self._jobs.get(job) or JobMemory()

    def _forget(self, jobs: set[str]) -> None:
        """Forget all jobs but these. What was found about them stays in the journal."""
        self._feed.forget(jobs)
        self._silences.forget(jobs)
        self._sensed.forget(self._core.state.nodes)
        if self._probes is not None:
            self._probes.forget(jobs)
        for job in {*self._jobs, *self.ledger.jobs()} - jobs:
            self._jobs.pop(job, None)
            self.failed.forget(job)
            self.ledger.forget(job)

    # ------------------------------------------------------------------ for people

    def report(self, job: str, level: str, rows_most: int) -> dict[str, Any]:
        """All that is known about a job, for programs and people. `level`: its health; `rows_most`: as in
        `report.of_job`."""
        newest, every_s, ledger = self._known(job).newest, self.every_s, self.ledger
        told: dict[str, Any] = {
            "known": self._core.state.findings.values(),
            "now_s": self._wall(),
            "every_s": every_s,
            "rows_most": rows_most,
        }
        return report.of_job(job, level, ledger, newest, self.failed.of(job), **told) | {
            "time": report.time_of(self._account(job)),
            "efficiency": report.efficiency(newest, every_s),
            **report.window_parts(newest),
        }

    def loss(self, job: str) -> float | None:
        """Return the loss of a job's newest measured step; None: not known, or not finite."""
        newest = self._known(job).newest
        numbers = newest.numbers if newest is not None else None
        return numbers.loss if numbers is not None and math.isfinite(numbers.loss) else None

    def eta(self, job: Job) -> Eta:
        """Return when the job's training ends; or why that is not known, of a job that stands too."""
        memory, account = self._known(job.name).eta, self._account(job.name)
        if (standing := eta.standing(job)) is not None:
            return standing
        if memory is None:
            reason = "no rank has reported a step yet" if self.every_s else "diagnosis is off"
            return Eta(None, "no steps yet" if self.every_s else "diagnosis off", reason)
        return memory.eta(1.0 if account is None else account.kept_share())

    def slow_steps(self, job: str) -> SlowStepMemory:
        """Return the slow steps of a job that this leader has heard of."""
        return self._known(job).slow_steps

    def curves(self, job: str) -> dict[str, Any]:
        """Return how a job's step time and loss went since this leader began, as `JobCurves.rows`."""
        return self._known(job).curves.rows()

    def mute(self, job: str, finding: str, for_s: float, reason: str) -> str:
        """Alert nobody to an open finding (its id) for so long; 0: alert again. Return until when, in words.

        Raises KeyError, with a text for people, when no such finding is open."""
        kind, _, subject = finding.partition(":")
        until_s = self._wall() + for_s
        self.ledger.mute(job, kind, subject, until_s=until_s, by=reason)
        self._report_open(job)
        self._write("FindingMuted", {"job": job, "id": finding, "for_s": for_s, "reason": reason})
        return f"nobody is alerted for {for_s:g} s: {reason}" if for_s else f"alerted again: {reason}"
