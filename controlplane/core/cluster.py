"""Step the decision core: one event in, the effects that follow out. No clock, no chance, no I/O.

Handlers only record facts in the cluster state and mark the jobs they touch. `_drive` then advances each
marked job by `PHASES`, as far as the facts allow; it asks what is true now, not what has just happened. So
the order, delay and repetition of facts do not matter, and a lost message costs time only. Nothing here
depends on the process: the same events give the same effects everywhere, which replay and the simulator
rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core import health, invariants
from controlplane.core.checkpoint import (
    adopting,
    finalizing,
    overdue,
    releasing,
    requests,
    retention,
    saving,
    scrubbing,
)
from controlplane.core.elasticity import draining, pausing, resizing, spares
from controlplane.core.failures import eligibility, hangs, network, quarantine
from controlplane.core.lifecycle import (
    ending,
    incidents,
    launching,
    loading,
    numeric_faults,
    rendezvous,
    submission,
    takeover,
)
from controlplane.core.membership import mass_failure, members, nodes, plausible, replacement
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.effects import Effect
from controlplane.core.records.events import Event
from controlplane.core.records.model import Incident, JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import CoreSettings
from controlplane.core.restore import leftovers, replica_holders, vouching
from controlplane.core.state.cluster_state import ClusterState
from controlplane.core.state.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS_MAX = 32
"""No chain of decisions in one step has so many rounds. Reaching it means that two decisions undo each
other."""


def _stored(m: ClusterState, event: ev.Stored) -> None:
    """etcd holds a write."""
    m.stored_ok(event.ticket)


def _store_failed(m: ClusterState, event: ev.StoreFailed) -> None:
    """etcd does not hold a write; if this leader is fenced, it decides nothing more."""
    m.fenced = m.fenced or event.fenced
    m.stored_not(event.ticket, event.reason)


def _dcs_changed(m: ClusterState, event: ev.DcsChanged) -> None:
    """Record whether etcd answers. Nothing is decided by it, but people are told."""
    trouble = "" if event.available else event.reason or "no answer"
    if trouble != m.dcs_trouble:
        m.dcs_trouble = trouble
        m.note(
            NoteKind.DCS_UNAVAILABLE if trouble else NoteKind.DCS_AVAILABLE,
            "etcd",
            trouble or "etcd answers again",
        )
        m.ask_health()


def _tick(m: ClusterState, event: ev.Tick) -> None:
    """Do nothing: every step looks at the deadlines, and a Tick only brings the time."""


def _said(handler: Callable[[ClusterState, Any], None]) -> Callable[[ClusterState, Any], None]:
    """Wrap a handler so that it gets messages of the node's current agent only, and none that cannot be
    true."""

    def handle(m: ClusterState, event: Any) -> None:
        word = plausible.ROWS[type(event)].word
        if nodes.known(m, event.node, event.incarnation, word) and plausible.fits(m, event):
            handler(m, event)

    return handle


HANDLERS: dict[type[Any], Callable[[ClusterState, Any], None]] = {
    ev.Elected: takeover.elected,
    ev.NodeJoined: nodes.joined,
    ev.NodeBeat: nodes.beat,
    ev.NodesHeard: nodes.heard,
    ev.MemberReport: nodes.report,
    ev.NodeBroken: nodes.broken,
    ev.DeviceReport: nodes.device,
    ev.MemberStarted: _said(members.started),
    ev.SnapshotReady: _said(releasing.snapshot),
    ev.SnapshotVouched: _said(vouching.vouched),
    ev.PartPersisted: _said(finalizing.part_persisted),
    ev.Persisted: _said(finalizing.persisted),
    ev.PersistFailed: _said(saving.persist_failed),
    ev.Published: _said(finalizing.published),
    ev.Mirrored: _said(finalizing.mirrored),
    ev.Collected: _said(retention.collected),
    ev.Scrubbed: _said(scrubbing.scrubbed),
    ev.CheckpointAsked: _said(requests.asked),
    ev.CheckpointsFound: adopting.found,
    ev.Loaded: _said(loading.loaded),
    ev.Fetched: _said(loading.fetched),
    ev.OrderFailed: _said(members.order_failed),
    ev.PeersLooked: _said(network.looked),
    ev.ProbeAnswered: mass_failure.answered,
    ev.DcsChanged: _dcs_changed,
    ev.QuarantineReleased: quarantine.release,
    ev.StacksCollected: _said(hangs.collected),
    ev.UserFault: _said(numeric_faults.faulted),
    ev.NodeReplaced: replacement.replaced,
    ev.NodeLeaving: _said(draining.leaving),
    ev.DrainRequested: draining.requested,
    ev.CordonRequested: draining.cordon,
    ev.JobSubmitted: submission.submitted,
    ev.JobStopRequested: ending.stop_requested,
    ev.PauseRequested: pausing.requested,
    ev.CheckpointWanted: pausing.checkpoint,
    ev.Stored: _stored,
    ev.StoreFailed: _store_failed,
    ev.Tick: _tick,
}
"""For each class of events, the function that records its facts."""


def _wait(m: ClusterState, job: Job) -> None:
    """Wait for etcd's answer: the callback of the write continues."""


PHASES: dict[JobPhase, Callable[[ClusterState, Job], None]] = {
    JobPhase.PENDING: launching.pending,
    JobPhase.LAUNCHING: launching.launching,
    JobPhase.RUNNING: rendezvous.running,
    JobPhase.STOPPING: incidents.stopping,
    JobPhase.LOADING: loading.loading,
    JobPhase.STORING: _wait,
    JobPhase.FORMING: rendezvous.running,
    JobPhase.LEAVING: ending.leaving,
    JobPhase.PARKED: incidents.stopping,
    JobPhase.PAUSED: incidents.stopping,
    JobPhase.FINISHED: ending.ended,
    JobPhase.FAILED: ending.ended,
    JobPhase.STOPPED: ending.ended,
}
"""For each phase, the function that advances a job as far as the facts allow."""


class Cluster:
    """All that one leader knows and decides. It has one caller, and is dropped when the leader is fenced."""

    def __init__(self, settings: CoreSettings = CoreSettings()) -> None:  # noqa: B008 - it is frozen
        self.settings = settings
        self.machine = ClusterState(settings)

    @property
    def term(self) -> int:
        """The leader term, which is also the fencing token; 0 until elected."""
        return self.machine.term

    @property
    def counts(self) -> dict[str, int]:
        """Messages dropped or refused so far, by kind."""
        return self.machine.counts

    @property
    def incidents(self) -> list[Incident]:
        """Closed incidents of this term, oldest first."""
        return self.machine.incidents

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take one event at time `now` (s, never going back) and return what is to be done.

        Due deadlines are handled in the same step. AssertionError when decisions do not settle, or a job
        would make a forbidden change of phase: the process ends before anything wrong is sent."""
        m = self.machine
        m.now = max(m.now, now)
        if m.fenced:
            return []
        if m.term == 0 and not isinstance(event, ev.Elected):
            return self._unelected(event)
        HANDLERS[type(event)](m, event)
        for kind, name in m.deadlines.due(m.now):
            _DUE[kind](m, name)
        for _ in range(ROUNDS_MAX):
            if not m.dirty:
                return m.take()
            for name in list(m.dirty):
                del m.dirty[name]
                _drive(m, m.jobs[name])
        raise AssertionError(f"decisions do not settle for {', '.join(m.dirty)}")

    def _unelected(self, event: Event) -> list[Effect]:
        """Before the election nothing is decided: a hello is refused, the rest counted."""
        if isinstance(event, ev.NodeJoined):
            return [
                fx.Refuse(
                    event.node,
                    event.incarnation,
                    "this coordinator does not lead: ask the leader",
                    retry=True,
                )
            ]
        self.counts["not_leading"] = self.counts.get("not_leading", 0) + 1
        return []

    @property
    def fenced(self) -> bool:
        """Whether another leader has taken over: nothing is decided here any more."""
        return self.machine.fenced

    def unstored(self, job: str) -> tuple[int, ...]:
        """Tickets of writes that etcd does not hold yet: spec, state and generation of this job."""
        return tuple(pending.effect.ticket for pending in self.machine.write_queues.get(f"job/{job}", ()))

    def unrecorded(self, job: str) -> tuple[int, ...]:
        """Tickets of writes that etcd does not hold yet: checkpoint records of this job."""
        return tuple(
            pending.effect.ticket for pending in self.machine.write_queues.get(finalizing.lane_of(job), ())
        )

    def next_deadline(self, steady: bool = False) -> float:
        """When (s, clock of `now`) a Tick is due at the latest; infinity: no deadline is set.

        `steady`: every node will send something by then, so the nodes' own timeouts do not count."""
        return self.machine.deadlines.next_but("node") if steady else self.machine.deadlines.next()

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        invariants.check(self.machine)


def _drive(m: ClusterState, job: Job) -> None:
    """Advance a job as far as the facts allow: judge new evidence, then its phase, then everything beside
    it."""
    if job.recovery.unjudged:
        incidents.take(m, job)
    if job.ending is None:
        before = job.phase
        PHASES[job.phase](m, job)
        if job.phase is not before or job.recovery.unjudged:
            m.touch(job)
        hangs.reconcile(m, job)
        saving.reconcile(m, job)
        pausing.reconcile(m, job)
        resizing.reconcile(m, job)
        draining.tidy(m, job)
        spares.reconcile(m, job)
        replica_holders.reconcile(m, job)
        leftovers.reconcile(m, job)
    members.kill_zombies(m, job)


def _due_job(m: ClusterState, name: str) -> None:
    """Drive a job whose deadline has come, unless it is gone."""
    if name in m.jobs:
        m.touch(m.jobs[name])


_DUE: dict[str, Callable[[ClusterState, str], None]] = {
    "job": _due_job,
    "node": nodes.deadline,
    "drain": draining.deadline,
    "brake": nodes.brake_due,
    "hold": eligibility.hold_over,
    "lemon": quarantine.expired,
    "cut": network.look_again,
    "health": lambda m, _name: health.due(m),
    "replace": lambda m, _name: replacement.due(m),
    "watch": lambda m, _name: overdue.due(m),
    "lane": lambda m, lane: m.pump(lane),
}
"""For each kind of deadline, the function that handles it."""
