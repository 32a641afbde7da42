"""Dispatch the core's effects, by a table from each kind of effect to the function that carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects
from controlplane.core.records.notes import DROPPED
from controlplane.wire import codec
from holdfast.logs import incident_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Effect
    from controlplane.daemon.leadership.recorder import StoreWriter
    from controlplane.daemon.server.links import Links
    from controlplane.daemon.telemetry.metrics import Metrics

ORDERS = (
    effects.Launch,
    effects.Interrupt,
    effects.Form,
    effects.Kill,
    effects.Complete,
    effects.Return,
    effects.Release,
    effects.Persist,
    effects.Seal,
    effects.Mirror,
    effects.Collect,
    effects.Scrub,
    effects.Replicate,
    effects.Discard,
    effects.Fetch,
    effects.CheckpointTold,
    effects.CollectStacks,
    effects.LookAtPeers,
    effects.CheckNode,
    effects.Drained,
    effects.Publish,
    effects.Load,
)

NOT_HANDLED = (effects.JobChanged, effects.CheckpointChanged)

JOB_OF: dict[type, Callable[[Any], str]] = {
    effects.Launch: lambda order: order.spec.job,
    effects.Load: lambda order: order.spec.job,
    effects.Form: lambda order: order.generation.job,
    **dict.fromkeys(
        (
            *(effects.Interrupt, effects.Kill, effects.Complete, effects.Fetch),
            *(effects.CollectStacks, effects.LookAtPeers),
        ),
        lambda order: order.job,
    ),
}
"""The orders that belong to a recovery, and where each names its job. They are sent with the name of the
job's open incident."""


class CoordinatorDispatcher:
    """Carries out effects at once and without waiting: orders and writes are only queued."""

    def __init__(
        self, links: Links, recorder: StoreWriter, metrics: Metrics, welcome: Callable[[int], Any]
    ) -> None:
        self._links, self._recorder, self._metrics, self._welcome = links, recorder, metrics, welcome
        self.table: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(effects.STORES, recorder.add),
            effects.Admit: self._admit,
            effects.Refuse: self._refuse,
            **dict.fromkeys(ORDERS, self._order),
            **dict.fromkeys(NOT_HANDLED, self._unhandled),
            effects.Judged: self._judged,
            effects.IncidentChanged: self._incident,
            # leader_term.py replaces the next six entries where it can carry these effects out.
            effects.Probe: self._unhandled,
            effects.ReplaceNode: self._unhandled,
            effects.JudgeRecords: self._unhandled,
            effects.JudgeNode: self._unhandled,
            effects.StacksKept: self._unhandled,
            effects.Alert: self._unhandled,
            effects.Note: self._note,
        }
        self.term = 0
        self._open: dict[str, str] = {}  # by job: the name of its open incident

    def perform(self, effect: Effect) -> None:
        """Carry out one effect."""
        self.table[type(effect)](effect)

    def _admit(self, effect: effects.Admit) -> None:
        self._links.admit(effect.node, effect.incarnation, self._welcome(effect.term))

    def _refuse(self, effect: effects.Refuse) -> None:
        message = codec.refused(effect.reason, retry=effect.retry, term=self.term)
        self._links.refuse(effect.node, effect.incarnation, message)

    def _order(self, effect: codec.Order) -> None:
        job_of = JOB_OF.get(type(effect))
        incident = self._open.get(job_of(effect), "") if job_of is not None and self._open else ""
        self._links.send(effect.node, effect, self.term, incident)

    def _judged(self, effect: effects.Judged) -> None:
        job = effect.verdict.job
        self._open[job] = incident_name(job, effect.incident)

    def _incident(self, effect: effects.IncidentChanged) -> None:
        if effect.incident.outcome != "open":
            self._open.pop(effect.incident.job, None)

    def _unhandled(self, effect: Effect) -> None:
        """Do nothing: such effects are for journal and metrics, which see every effect anyway."""

    def _note(self, effect: effects.Note) -> None:
        """Count what the core dropped. The journal has every note."""
        if effect.kind in DROPPED:
            self._metrics.messages_dropped_total.labels("stale").inc()
