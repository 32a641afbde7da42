"""Hold everything that lives and ends with one leader term, around one Cluster.

Every term has a new object of this class, with its own core, streams, queues and tasks. So nothing that was
under way in a former term can act in this one."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.background_tasks import together
from controlplane.core import view
from controlplane.core.cluster import Cluster
from controlplane.core.records.effects import (
    Alert,
    CheckNode,
    CheckpointChanged,
    JudgeNode,
    JudgeRecords,
    Note,
    Probe,
    ReplaceNode,
    StacksKept,
)
from controlplane.core.records.events import (
    CheckpointsFound,
    CheckpointWanted,
    CordonRequested,
    DcsChanged,
    DrainRequested,
    JobDeleteRequested,
    JobSubmitted,
    PauseRequested,
    QuarantineReleased,
)
from controlplane.core.records.model import JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.stores import STORES, ForgetJob, ForgetNode, StoreJob, StoreNode
from controlplane.daemon.diagnosis.causes import FirstCauses
from controlplane.daemon.diagnosis.diagnosing import Diagnosis
from controlplane.daemon.diagnosis.eta import eta_row
from controlplane.daemon.diagnosis.flight_records import FlightJudging
from controlplane.daemon.diagnosis.link_probes import LinkProbes
from controlplane.daemon.diagnosis.node_checks import NodeChecking
from controlplane.daemon.diagnosis.profiling import ProfileRequests
from controlplane.daemon.diagnosis.report import health_of_cluster
from controlplane.daemon.diagnosis.stack_requests import StackRequests
from controlplane.daemon.diagnosis.tunable import TermSeen, of_job
from controlplane.daemon.journal.stack_archive import FOLDER, StackArchive
from controlplane.daemon.leadership import accounts as time_accounts
from controlplane.daemon.leadership import findings as kept_findings
from controlplane.daemon.leadership import welcoming
from controlplane.daemon.leadership.recorder import StoreWriter
from controlplane.daemon.loop.changes import Changes
from controlplane.daemon.loop.dispatch import CoordinatorDispatcher
from controlplane.daemon.loop.prober import Prober
from controlplane.daemon.loop.stepping import Loop, TermOver
from controlplane.daemon.server.links import Links
from controlplane.daemon.server.log_relay import LogRelays
from controlplane.daemon.server.log_tails import LogTails
from controlplane.daemon.server.relays import BeatRelays
from controlplane.daemon.telemetry.job_time import Account
from controlplane.daemon.telemetry.observer import Observer
from controlplane.diagnosis_settings import DiagnosisSettings
from controlplane.wire import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controlplane.core.records.diagnosis import ProbeLinks
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Elected, Event, JobStopRequested
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.rows import JobRow
    from controlplane.daemon.journal.journal import Journal
    from controlplane.daemon.kube.platform import Platform
    from controlplane.daemon.leadership.recorder import Commit
    from controlplane.daemon.leadership.rows import RecordMapping
    from controlplane.daemon.telemetry.alerts import Alerts
    from controlplane.daemon.telemetry.incident_spans import Spans
    from controlplane.daemon.telemetry.metrics import Metrics
    from controlplane.wire import control_pb2 as pb

GAUGE_INTERVAL_S = 1.0
MARKED = {
    NoteKind.DRAINING: "draining",
    NoteKind.NODE_DRAINED: "drained",
    NoteKind.DRAIN_REFUSED: "refused",
    NoteKind.CORDON_REFUSED: "refused",
    NoteKind.CORDONED: "cordoned",
    NoteKind.UNCORDONED: "uncordoned",
    NoteKind.PAUSING: "pausing",
    NoteKind.RESUMED: "resumed",
    NoteKind.PAUSE_REFUSED: "refused",
    NoteKind.CHECKPOINT_BEGUN: "begun",
    NoteKind.CHECKPOINT_WAITS: "waits",
    NoteKind.CHECKPOINT_REFUSED: "refused",
    NoteKind.JOB_DELETED: "deleted",
    NoteKind.DELETE_REFUSED: "refused",
}
"""Notes that answer what a person asked for a node or a job, and the word that the person gets."""

OperatorRequest = DrainRequested | CordonRequested | PauseRequested | CheckpointWanted | JobDeleteRequested
"""What a person can ask for a node or a job. The core answers with one of the notes above."""


class LeaderTerm:
    """One leader term: built after the election, dropped when leadership is lost.

    `held` returns whether this process may still lead. `trouble` returns why etcd does not answer
    keepalives; "": it does."""

    def __init__(
        self,
        cluster: str,
        core_settings: CoreSettings,
        elected: Elected,
        *,
        store: Commit,
        records: RecordMapping,
        journal: Journal,
        metrics: Metrics,
        held: Callable[[], bool],
        trouble: Callable[[], str] = lambda: "",
        alerts: Alerts | None = None,
        spans: Spans | None = None,
        platform: Platform | None = None,
        accounts: Mapping[str, Account] | None = None,
        findings: FindingLedger | None = None,
        diagnosis: DiagnosisSettings | None = None,
        tails_every_s: float = 0.0,
        relay_beats_from: int = 0,
        lease_ttl_s: float = 0.0,
    ) -> None:
        self._cluster_name, self._lease_ttl_s = cluster, lease_ttl_s
        self.term, self._metrics, self._journal = elected.term, metrics, journal
        self.core, self.links = Cluster(core_settings), Links(metrics)
        self.recorder = StoreWriter(store, records, self.post, self.term, metrics)
        self._dispatcher = CoordinatorDispatcher(self.links, self.recorder, metrics, self._welcome)
        self._dispatcher.term = self.term
        self.observer = Observer(metrics, accounts=accounts)
        ledger = findings or FindingLedger()
        self._savers = (
            time_accounts.saver(store, records.keys, self.term, self.observer),
            kept_findings.saver(store, records.keys, self.term, ledger),
        )
        write = functools.partial(journal.write_body, self.term, "daemon")
        self.diagnosis = self._diagnose(ledger, diagnosis or DiagnosisSettings(diagnose_every_s=0.0), write)
        hold, note = self.diagnosis.hold, self.diagnosis.failed.judged_incident
        self.causes = FirstCauses(self.core, post=self.post, hold=hold, note=note)
        self._flight_judging = FlightJudging(self.post, self.diagnosis.report_now)
        parts = self.core, self.links, self.term
        self.profiles = ProfileRequests(*parts, write, judge=self.diagnosis.take_profile)
        self.stacks, self.logs = StackRequests(*parts), LogRelays(*parts)
        before = frozenset(spec.job for spec in elected.specs)
        self.tails = LogTails(self.core, self.links, self.logs, tails_every_s, inherited=before)
        self.changes, self._prober, self.beats = Changes(), Prober(self.post), self._relays(relay_beats_from)
        self.loop = Loop(self.core, self.term, self._perform, journal, metrics)
        self.loop.on_event, self.loop.held = self._note_event, held
        self._trouble, self._troubled, self._spans = trouble, "", spans
        self._stack_archive = StackArchive(journal.folder / FOLDER if journal.folder else None)
        self._dispatcher.table |= {Probe: self._prober.probe, StacksKept: self._stack_archive.keep}
        self._dispatcher.table[JudgeRecords] = self._flight_judging.judge
        self._node_checking = checking = NodeChecking(self.core, self.links, self.term, self.post)
        self._dispatcher.table |= {CheckNode: checking.order, JudgeNode: checking.judge}
        if alerts is not None:
            alerts.begin_term()
            self._dispatcher.table[Alert] = alerts.take
        self._platform, self._replacer = platform, None if platform is None else platform.replacer(self.post)
        if self._replacer is not None:
            self._dispatcher.table[ReplaceNode] = self._replacer.replace
        self.post(elected)

    def _relays(self, from_nodes: int) -> BeatRelays:
        send = functools.partial(self.links.send, term=self.term)
        count, show = self._metrics.heartbeats_relayed_total.add, self._metrics.beat_relays.set
        return BeatRelays(from_nodes, post=self.post, send=send, count=count, show=show)

    def _diagnose(
        self, ledger: FindingLedger, settings: DiagnosisSettings, write: Callable[[str, dict[str, Any]], None]
    ) -> Diagnosis:
        return Diagnosis(
            self.core,
            ledger,
            settings,
            post=self.post,
            write=write,
            show=self._metrics.show_steps,
            lose=self.observer.lose,
            show_numbers=self._metrics.show_numbers,
            achieve=self._metrics.show_efficiency,
            show_eta=self._metrics.show_eta,
            show_failed=self._metrics.show_failed,
            account=self.observer.account,
            probes=LinkProbes(self.core, self._probe_links, self.term),
            keep=self._savers[1].try_to_keep,
        )

    def post(self, event: Event) -> None:
        """Have the core take this event, after those posted before."""
        self.loop.post(event)

    def _probe_links(self, order: ProbeLinks) -> str:
        """Order probes of a node's links. Return why its agent cannot be asked; "": it was."""
        reason = self.links.obstacle(order.node, order)
        if not reason:
            self.links.send(order.node, order, self.term)
        return reason

    def _note_event(self, event: Event) -> None:
        self.observer.event(event)
        self.changes.event(event)

    def _perform(self, effect: Effect) -> None:
        self._dispatcher.perform(effect)
        self.observer.effect(effect)
        self.changes.effect(effect)
        self.causes.effect(effect)
        if self._spans is not None:
            self._spans.effect(effect)
        if self._platform is not None:
            self._platform.take(effect)

    async def run(self) -> None:
        """Lead until cancelled, until Fenced (in an exception group), or until the core raises."""
        works = [self.loop.run(), self.recorder.run(), self._show(), self._watch_etcd(), self._hush()]
        works += [self.diagnosis.run(), self.causes.run(), self.tails.run(), self.beats.run()]
        works += [saver.run() for saver in self._savers]
        if self._platform is not None:
            works.append(self._platform.watch(self.post, self.core))
        await together(*works)

    async def _hush(self) -> None:
        """Wait for the end of the term, then end all requests that it has under way."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.profiles.close()
            self.logs.close()
            await self._prober.close()
            await self._stack_archive.close()
            await self._flight_judging.close()
            await self._node_checking.close()
            if self._replacer is not None:
                await self._replacer.close()
            if self._spans is not None:
                self._spans.end()

    async def _watch_etcd(self) -> None:
        """Post when etcd stops answering keepalives, and when it answers again."""
        while True:
            trouble = self._trouble()
            if bool(trouble) != bool(self._troubled):
                self._metrics.dcs_unavailable.set(bool(trouble))
                self.post(DcsChanged(not trouble, trouble))
            self._troubled = trouble
            await asyncio.sleep(GAUGE_INTERVAL_S)

    async def submit(self, event: JobSubmitted) -> tuple[str, str]:
        """Submit a job. Return why it is refused ("": it is not), and why etcd does not hold it
        yet ("": it does)."""
        try:
            effects = await self.loop.ask(event)
        except TermOver as over:
            return "", str(over)
        refused = [
            each.reason
            for each in effects
            if isinstance(each, Note) and each.kind is NoteKind.SUBMISSION_REFUSED
        ]
        if refused:
            return refused[0], ""
        if self.core.fenced:
            return "", str(TermOver())
        trouble = await self._stored(self.core.unstored(event.spec.job))
        if not trouble:
            await self._savers[0].try_to_keep()  # since when the job is there, in case this leader dies soon
        return "", trouble

    async def settle(self, event: JobSubmitted | JobStopRequested) -> str:
        """Post an event. Return "" once etcd holds all that the core knows of its job, else why not."""
        try:
            await self.loop.ask(event)
        except TermOver as over:
            return str(over)
        if self.core.fenced:
            return str(TermOver())
        name = event.spec.job if isinstance(event, JobSubmitted) else event.job
        return await self._stored(self.core.unstored(name))

    async def adopt(self, event: CheckpointsFound) -> tuple[dict[str, str], str]:
        """Post checkpoints that were found on a storage.

        Returns why some are refused, by id, and why etcd does not hold the others yet ("": it does)."""
        try:
            effects = await self.loop.ask(event)
        except TermOver as over:
            return {}, str(over)
        if self.core.fenced:
            return {}, str(TermOver())
        ended = [each for each in effects if isinstance(each, CheckpointChanged) and each.job == event.job]
        refused = {each.checkpoint: each.reason for each in ended if each.outcome == "refused"}
        return refused, await self._stored(self.core.unrecorded(event.job))

    async def release(self, node: str, reason: str) -> str:
        """Forget a node's failures. Return why etcd has not forgotten them yet; "": it has."""
        try:
            effects = await self.loop.ask(QuarantineReleased(node, reason))
        except TermOver as over:
            return str(over)
        return await self._stored(tuple(each.ticket for each in effects if isinstance(each, STORES)))

    async def mark(self, event: OperatorRequest) -> tuple[str, str, str]:
        """Post what a person asks for. Return the outcome (see MARKED), the reason for it, and why etcd does
        not hold it yet ("": it does)."""
        try:
            effects = await self.loop.ask(event)
        except TermOver as over:
            return "", "", str(over)
        notes = [each for each in effects if isinstance(each, Note) and each.kind in MARKED]
        of_job = isinstance(event, PauseRequested | JobDeleteRequested)
        wanted = (StoreJob, ForgetJob) if of_job else (StoreNode, ForgetNode)
        tickets = tuple(each.ticket for each in effects if isinstance(each, wanted))
        what, why = (MARKED[notes[-1].kind], notes[-1].reason) if notes else ("", "")
        return what, why, await self._stored(tickets)

    async def _stored(self, tickets: tuple[int, ...]) -> str:
        for outcome in asyncio.as_completed(map(self.recorder.outcome, tickets)):
            if reason := await outcome:
                return reason  # the core has not sent the writes behind it yet
        return ""

    def status(self, leader: str) -> pb.StatusReply:
        """Return the answer of Admin.Status."""
        now = time.monotonic()
        rows = {
            "jobs": tuple(map(self._with_time, view.jobs(self.core, now))),
            "nodes": view.nodes(self.core, now),
            "ranks": view.ranks(self.core, now),
            "checkpoints": view.checkpoints(self.core, now),
            "health": view.health(self.core, now),
        }
        return codec.status_message(self._cluster_name, self.term, leader, rows)

    def _with_time(self, row: JobRow) -> JobRow:
        account = self.observer.account(row.job)
        if account is None:
            return row
        spent = account.total
        return dataclasses.replace(
            row,
            total_s=spent.total_s,
            productive_s=spent.productive_s,
            unknown_s=spent.unknown_s,
            age_s=0.0 if account.late else max(0.0, time.time() - account.since_s),
            step_s=self.observer.step_s(row),
            loss=self.diagnosis.loss(row.job) if row.phase == JobPhase.RUNNING.value else None,
            **eta_row(self.diagnosis.eta(self.core.state.jobs[row.job]), time.time()),
        )

    def health_report(self, job: str, rows_most: int = 0) -> dict[str, Any]:
        """The health report of a job with its diagnosis, or of the whole cluster (""), for programs.

        `rows_most`: as in `diagnosis.report.of_job`."""
        if not job:
            return health_of_cluster(self._cluster_name, self.core, self.diagnosis.ledger)
        known = self.core.state.jobs[job]
        row = view.job_row(self.core, known)
        seen = TermSeen(self.observer.seen_s(job), self.observer.age_s, self._lease_ttl_s)
        parts = of_job(self.core, known, seen, self.stacks.reductions.get(job))
        return self.diagnosis.report(job, row.health or row.phase, rows_most) | parts

    def curves(self, job: str) -> dict[str, Any]:
        """Return how a job's loss, step time (s) and goodput went, each as `Curve.row`."""
        account = self.observer.account(job)
        goodput = (account or Account(0.0)).curve()
        return self.diagnosis.curves(job) | {"goodput": goodput}

    def _welcome(self, term: int) -> pb.CoordinatorMessage:
        nodes, window_s = len(self.core.state.nodes), self.diagnosis.window_s
        timeout_s = self.core.settings.node_timeout_s
        return welcoming.welcome(self._cluster_name, term, nodes, timeout_s, window_s)

    async def _show(self) -> None:
        """Update the gauges that are counted from the cluster's state, once a second."""
        while True:
            self.observer.look(self.core)
            self._metrics.show_health(view.health(self.core, time.monotonic()).level)
            self._metrics.journal_lines_lost.set(self._journal.lines_lost)
            await asyncio.sleep(GAUGE_INTERVAL_S)
