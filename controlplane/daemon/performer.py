"""What becomes of the core's effects: a table from each effect to who carries it out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from controlplane.core import effects
from controlplane.core.model import JobPhase
from controlplane.daemon.metrics import CHECKPOINT_FAILURES
from controlplane.wire import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.effects import Effect
    from controlplane.daemon.links import Links
    from controlplane.daemon.metrics import Metrics
    from controlplane.daemon.recorder import Recorder

ORDERS = (
    effects.Launch,
    effects.Interrupt,
    effects.Form,
    effects.Kill,
    effects.Complete,
    effects.Release,
    effects.Persist,
    effects.Seal,
    effects.Mirror,
    effects.Collect,
    effects.Scrub,
    effects.Replicate,
    effects.Fetch,
    effects.CheckpointTold,
    effects.Publish,
    effects.Load,
)


class Performer:
    """Carries out effects at once and without waiting: orders are queued, writes are queued."""

    def __init__(
        self, links: Links, recorder: Recorder, metrics: Metrics, welcome: Callable[[int], Any]
    ) -> None:
        self._links, self._recorder, self._metrics, self._welcome = links, recorder, metrics, welcome
        self.table: dict[type, Callable[[Any], None]] = {
            effects.Store: recorder.add,
            effects.Admit: self._admit,
            effects.Refuse: self._refuse,
            **dict.fromkeys(ORDERS, self._order),
            effects.Judged: self._judged,
            effects.IncidentChanged: self._incident,
            effects.JobChanged: self._job,
            effects.CheckpointChanged: self._checkpoint,
            effects.Note: self._note,
        }
        self.term = 0

    def perform(self, effect: Effect) -> None:
        """Carry out one effect."""
        self.table[type(effect)](effect)

    def _admit(self, effect: effects.Admit) -> None:
        self._links.admit(effect.node, effect.incarnation, self._welcome(effect.term))

    def _refuse(self, effect: effects.Refuse) -> None:
        message = codec.refused(effect.reason, retry=effect.retry, term=self.term)
        self._links.refuse(effect.node, effect.incarnation, message)

    def _order(self, effect: codec.Order) -> None:
        self._links.send(effect.node, effect, self.term)

    def _judged(self, effect: effects.Judged) -> None:
        verdict = effect.verdict
        self._metrics.failures_detected_total.labels(verdict.scope.value, verdict.cause.value).inc()

    def _incident(self, effect: effects.IncidentChanged) -> None:
        incident = effect.incident
        if incident.outcome == "open":
            return
        strategy = incident.plan.strategy.value
        self._metrics.incidents_total.labels(strategy, incident.outcome).inc()
        self._metrics.lost_steps_total.labels(incident.job).inc(max(0, incident.lost_steps))
        for phase, duration_s in incident.phases_s:
            self._metrics.recovery_seconds.labels(phase).observe(duration_s)

    def _job(self, effect: effects.JobChanged) -> None:
        self._metrics.show_job_phase(effect.state.job, JobPhase(effect.state.phase))

    def _checkpoint(self, effect: effects.CheckpointChanged) -> None:
        metrics, outcome = self._metrics, effect.outcome
        if outcome in CHECKPOINT_FAILURES:
            metrics.checkpoint_failures_total.labels(outcome).inc()
        counted = {
            "bad": metrics.checkpoint_fallbacks_total,
            "repaired": metrics.checkpoint_repairs_total,
            "collected": metrics.checkpoint_collected_total,
        }
        if outcome in counted:
            counted[outcome].labels(effect.job).inc()
        if outcome == "committed" and effect.record is not None:
            metrics.checkpoint_last_success_timestamp_seconds.labels(effect.job).set(time.time())
            metrics.checkpoint_written_bytes_total.labels(effect.job).inc(effect.record.bytes_written)
            metrics.checkpoint_size_bytes.labels(effect.job).set(effect.record.bytes_total)

    def _note(self, effect: effects.Note) -> None:
        """The journal has it; what the core dropped is counted."""
        if effect.kind.startswith(("stale_", "stray")):
            self._metrics.messages_dropped_total.labels("stale").inc()
