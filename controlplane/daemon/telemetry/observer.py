"""Turn one leader term into metrics: its events and effects, and a look at the cluster each second."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from controlplane.core import view
from controlplane.core.census import census
from controlplane.core.failures.blame import PLAN
from controlplane.core.records import effects, events
from controlplane.core.records.model import NO_STEP, JobPhase
from controlplane.daemon.telemetry.job_time import (
    NOWHERE,
    PRODUCTIVE,
    REDONE,
    SNAPSHOT,
    STARTUP,
    TIMES,
    UNKNOWN,
    Account,
    JobTimes,
    Spent,
    StepPace,
)
from controlplane.daemon.telemetry.metrics import CHECKPOINT_FAILURES, NODE_STATES
from holdfast.logs import of_incident

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controlplane.core.cluster import Cluster
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.core.records.model import Incident, JobSpec
    from controlplane.core.rows import JobRow
    from controlplane.daemon.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_TIMERS_KEPT = 256
LOOK_SHARE = 200.0
"""After a look that took a second, the next comes this many seconds later."""
_STAGES = {"persisted": ("persist", "started"), "committed": ("commit", "persisted")}
"""The moment that ends a stage of a checkpoint -> the stage, and the moment that began it. The stage
`publish` begins when the checkpoint is committed."""


class _Seen:
    """What is known of one job."""

    def __init__(self, now: float, account: Account) -> None:
        self.times = JobTimes(now, account.total.productive_s + account.total.unknown_s)
        self.pace = StepPace()
        self.account = account
        self.phase = JobPhase.PENDING
        self.starting = False  # it came to run while we looked, and has not completed a step since
        self.first_step: int | None = None  # the step at which we first saw it run
        self.ranks = 1  # of the job's newest generation, 1 at least
        self.noticed = 0  # the newest incident whose detection time is counted
        self.cause = ""  # of the newest failure


class Observer:
    """Lives and ends with one leader term. An event or effect that changes no metric costs one
    look into a table."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        accounts: Mapping[str, Account] | None = None,
    ) -> None:
        """`accounts`: as the last leader saved them, by job."""
        self._before = dict(accounts or {})
        self._metrics, self._clock, self._wall = metrics, clock, wall
        self._began = clock()
        self._rest_until = 0.0  # when the next look is due
        self._jobs: dict[str, _Seen] = {}
        self._timers: dict[tuple[str, str], dict[str, float]] = {}  # (job, checkpoint): when it reached what
        self._events: dict[type, Callable[[Any], None]] = {
            events.Elected: self._elected,
            events.JobSubmitted: lambda event: self._submitted(event.spec),
            events.SnapshotReady: self._snapshot,
            events.Persisted: lambda event: self._timer(event.record.job, event.record.id, "persisted"),
            events.Published: self._published,
        }
        self._effects: dict[type, Callable[[Any], None]] = {
            effects.Judged: self._judged,
            effects.IncidentChanged: lambda effect: self._incident(effect.incident),
            effects.JobChanged: self._job_changed,
            effects.CheckpointChanged: self._checkpoint,
            effects.Release: self._release,
            effects.ForgetJob: self._forget,
        }

    def event(self, event: Event) -> None:
        """Count what an event says. The core has taken it."""
        if (handler := self._events.get(type(event))) is not None:
            handler(event)

    def effect(self, effect: Effect) -> None:
        """Count what an effect says. The core has decided on it."""
        if (handler := self._effects.get(type(effect))) is not None:
            handler(effect)

    def look(self, core: Cluster) -> None:
        """Set the gauges that are counted from the cluster's state, and settle the jobs' accounts.

        In a large cluster this takes long, and is done less often: it gets 0.5 % of the time."""
        now = self._clock()
        if now < self._rest_until:
            return
        for row in view.jobs(core, now):
            self._look_at(row, now, self._trains_as(row, elastic=core.state.jobs[row.job].elastic))
            self._look_into(core, row)
        found, metrics = census(core, now), self._metrics
        nodes = {("node", state): found.nodes.get(state, 0) for state in (*NODE_STATES, *found.nodes)}
        metrics.show_members(nodes | {("process", phase): n for phase, n in found.processes.items()})
        metrics.spare_nodes.set(found.spare)
        metrics.quarantined_nodes.set(found.quarantined)
        metrics.heartbeat_lag_seconds.set(found.silence_s)
        self._rest_until = now + LOOK_SHARE * (self._clock() - now)

    def _trains_as(self, row: JobRow, *, elastic: bool) -> str:
        """What the time since the last look counts as, if the job runs."""
        seen = self._seen(row.job)
        if row.phase != JobPhase.RUNNING.value:
            return PRODUCTIVE  # it does not matter
        if not elastic:
            return UNKNOWN  # the script does not use the SDK, or has not yet
        if seen.first_step is None:
            seen.first_step = row.step
        if seen.starting and row.step <= seen.first_step:
            return STARTUP
        seen.starting = False
        return PRODUCTIVE

    def _look_at(self, row: JobRow, now: float, trains_as: str) -> None:
        metrics, seen = self._metrics, self._seen(row.job)
        seen.ranks = max(1, row.world_size)
        metrics.generation.labels(row.job).set(row.generation)
        metrics.step.labels(row.job).set(row.step)
        if row.phase == JobPhase.RUNNING.value and row.step > NO_STEP:
            mean_s = seen.pace.look(now, row.step)
            if mean_s > 0:
                metrics.step_seconds.labels(row.job).observe(mean_s)
                metrics.last_progress_timestamp_seconds.labels(row.job).set(self._wall())
        else:
            seen.pace.stop()
        seen.times.trains_as(now, trains_as)
        spent = seen.times.take(now)
        seen.account.add(self._wall(), spent, seen.times.corrections())
        metrics.productive_seconds_total.labels(row.job).inc(spent.productive_s + spent.unknown_s)
        metrics.unknown_seconds_total.labels(row.job).inc(spent.unknown_s)
        metrics.show_goodput(row.job, seen.account.goodput)
        for cause, lost_s in spent.lost_s.items():
            metrics.lost_seconds_total.labels(row.job, cause).inc(lost_s)

    def _look_into(self, core: Cluster, row: JobRow) -> None:
        state = core.state
        kinds = (
            () if not row.health else [each.kind for each in state.findings.values() if each.job == row.job]
        )
        streak = state.jobs[row.job].checkpoints.keeping.checkpoints.times if row.health else 0
        self._metrics.show_job_health(row.job, row.health, kinds, streak)

    def lose(self, job: str, lost_s: Mapping[str, float]) -> None:
        """Count parts of the job's newest steps as lost, by cause: what its ranks report of them."""
        if (seen := self._jobs.get(job)) is not None:
            for cause, cause_lost_s in lost_s.items():
                seen.times.owe(cause, cause_lost_s)

    def account(self, job: str) -> Account | None:
        """Return where this job's time went; None when nothing is known of it."""
        seen = self._jobs.get(job)
        return seen.account if seen is not None else None

    @property
    def age_s(self) -> float:
        """How long (s) this leader term has lasted."""
        return self._clock() - self._began

    def seen_s(self, job: str) -> float:
        """Return how much of a job's time (s) this leader term has seen, up to the newest look."""
        seen = self._jobs.get(job)
        return seen.times.elapsed_s if seen is not None else 0.0

    def step_s(self, row: JobRow) -> float:
        """Return the mean duration (s) of a job's newest steps; 0 when none is known, or it does not
        train."""
        seen = self._jobs.get(row.job)
        trains = seen is not None and row.phase == JobPhase.RUNNING.value and not seen.starting
        return seen.pace.mean_s if seen is not None and trains else 0.0

    def accounts(self) -> dict[str, Account]:
        """Return where the time of every job went, by job."""
        return {job: seen.account for job, seen in self._jobs.items()}

    def _forget(self, effect: effects.ForgetJob) -> None:
        self._jobs.pop(effect.job, None)

    def _seen(self, job: str) -> _Seen:
        if job not in self._jobs:
            self._metrics.know_job(job)
            account = self._before.pop(job, None) or Account(self._wall())
            self._jobs[job] = _Seen(self._clock(), account)
        return self._jobs[job]

    def _elected(self, event: events.Elected) -> None:
        for spec in event.specs:
            known = spec.job in self._before
            self._submitted(spec)
            self._jobs[spec.job].account.late |= not known
        for state in event.states:
            self._enter(state.job, JobPhase(state.phase))
            self._count_gap(self._seen(state.job))

    def _submitted(self, spec: JobSpec) -> None:
        self._seen(spec.job)
        if spec.storage:
            gauge = self._metrics.checkpoint_last_success_timestamp_seconds
            gauge.labels(spec.job, "storage", "full").set(self._wall())

    def _job_changed(self, effect: effects.JobChanged) -> None:
        self._enter(effect.state.job, JobPhase(effect.state.phase))

    def _enter(self, job: str, phase: JobPhase) -> None:
        seen = self._seen(job)
        if phase is JobPhase.LAUNCHING and seen.phase is JobPhase.STORING:
            seen.account.begin_life(self._wall())
        seen.starting, seen.first_step = phase is JobPhase.RUNNING and seen.phase is not phase, None
        seen.phase = phase
        seen.times.enter(self._clock(), phase)
        self._metrics.show_job_phase(job, phase)
        if phase is JobPhase.RUNNING:
            self._metrics.last_progress_timestamp_seconds.labels(job).set(self._wall())

    def _count_gap(self, seen: _Seen) -> None:
        """Nobody saw what the job did between the last leader's account and this term."""
        seen.starting = False  # it may have run for long
        gap_s = self._wall() - seen.account.until_s if seen.account.until_s else 0.0
        if gap_s > 0 and TIMES[seen.phase] != NOWHERE:
            seen.account.add(self._wall(), Spent(unknown_s=gap_s))

    def _judged(self, effect: effects.Judged) -> None:
        verdict = effect.verdict
        self._metrics.failures_detected_total.labels(
            verdict.job, verdict.scope.value, verdict.cause.value
        ).inc()
        seen = self._seen(verdict.job)
        evidence = verdict.evidence[0] if verdict.evidence else verdict.cause.value
        about = of_incident(verdict.job, effect.incident, node=",".join(verdict.nodes))
        log.warning("%s: %s", evidence, effect.plan.reason.partition("\n")[0], extra=about)
        seen.cause = verdict.cause.value
        seen.times.judged(self._clock(), seen.cause)

    def _incident(self, incident: Incident) -> None:
        metrics, seen = self._metrics, self._seen(incident.job)
        phases_s = dict(incident.phases_s)
        if seen.noticed != incident.id and "detect" in phases_s:
            seen.noticed = incident.id
            seen.times.owe(seen.cause or incident.verdict.cause.value, phases_s["detect"])
            metrics.detection_seconds.labels(incident.job).observe(phases_s["detect"])
        if incident.outcome == "open":
            return
        about = of_incident(incident.job, incident.id, generation=incident.generation_after)
        log.info("%s in %.3f s", incident.outcome, sum(phases_s.values()), extra=about)
        whose = incident.verdict.whose
        metrics.incidents_total.labels(
            incident.job, incident.plan.strategy.value, incident.outcome, whose
        ).inc()
        lost_steps = max(0, incident.lost_steps)
        metrics.steps_lost_total.labels(incident.job).inc(lost_steps)
        seen.times.owe(REDONE, lost_steps * seen.pace.mean_s)
        for phase, duration_s in phases_s.items() if whose != PLAN else ():
            metrics.recovery_seconds.labels(incident.job, phase).observe(duration_s)

    def _snapshot(self, event: events.SnapshotReady) -> None:
        seen = self._jobs.get(event.job)
        if seen is None:
            return  # an agent reports on an unknown job
        self._metrics.snapshot_stall_seconds.labels(event.job).observe(event.stall_s)
        seen.times.owe(SNAPSHOT, event.stall_s / seen.ranks)

    def _release(self, effect: effects.Release) -> None:
        gauge = self._metrics.checkpoint_last_success_timestamp_seconds
        gauge.labels(effect.job, "memory", "snapshot").set(self._wall())

    def _checkpoint(self, effect: effects.CheckpointChanged) -> None:
        metrics, outcome = self._metrics, effect.outcome
        self._timer(effect.job, effect.checkpoint, outcome)
        if outcome in CHECKPOINT_FAILURES:
            metrics.checkpoint_failures_total.labels(effect.job, outcome).inc()
        counted = {
            "bad": metrics.checkpoint_fallbacks_total,
            "repaired": metrics.checkpoint_repairs_total,
            "collected": metrics.checkpoint_collected_total,
        }
        if outcome in counted:
            counted[outcome].labels(effect.job).inc()
        tier = {"committed": "storage", "mirrored": "mirror"}.get(outcome)
        if tier and effect.record is not None:
            gauge = metrics.checkpoint_last_success_timestamp_seconds
            gauge.labels(effect.job, tier, effect.record.kind).set(self._wall())
        if outcome == "committed" and effect.record is not None:
            metrics.checkpoint_bytes_total.labels(effect.job).inc(effect.record.bytes_written)
            metrics.checkpoint_size_bytes.labels(effect.job).set(effect.record.bytes_total)

    def _published(self, event: events.Published) -> None:
        begun = self._timers.pop((event.job, event.checkpoint), {}).get("committed")
        if begun is not None and not event.reason:
            self._metrics.checkpoint_seconds.labels(event.job, "publish").observe(self._clock() - begun)

    def _timer(self, job: str, checkpoint: str, reached: str) -> None:
        """Note when a checkpoint reached a stage, and observe how long the stage took that ends there."""
        now = self._clock()
        if reached == "started":
            self._timers.setdefault((job, checkpoint), {})
            while len(self._timers) > _TIMERS_KEPT:
                del self._timers[next(iter(self._timers))]
        marks = self._timers.get((job, checkpoint))
        if marks is None:
            return
        stage, since = _STAGES.get(reached, ("", ""))
        if since in marks:
            self._metrics.checkpoint_seconds.labels(job, stage).observe(now - marks[since])
        marks[reached] = now
