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
    suspects,
)
from controlplane.core.elasticity import draining, pausing, resizing, spares, swapping
from controlplane.core.failures import eligibility, hangs, network, node_checks, quarantine
from controlplane.core.lifecycle import (
    corrupt_state,
    deleting,
    ending,
    incidents,
    launching,
    loading,
    numeric_faults,
    recurring,
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
from controlplane.core.recovery import breaks
from controlplane.core.restore import leftovers, replica_holders, vouching
from controlplane.core.state.cluster_state import ClusterState
from controlplane.core.state.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS_MAX = 32
"""No chain of decisions in one step has so many rounds. Reaching it means that two decisions undo each
other."""


def _stored(state: ClusterState, event: ev.Stored) -> None:
    """etcd holds a write."""
    state.stored_ok(event.ticket)


def _store_failed(state: ClusterState, event: ev.StoreFailed) -> None:
    """etcd does not hold a write; if this leader is fenced, it decides nothing more."""
    state.fenced = state.fenced or event.fenced
    state.stored_not(event.ticket, event.reason)


def _dcs_changed(state: ClusterState, event: ev.DcsChanged) -> None:
    """Record whether etcd answers. Nothing is decided by it, but people are told."""
    trouble = "" if event.available else event.reason or "no answer"
    if trouble != state.dcs_trouble:
        state.dcs_trouble = trouble
        state.note(
            NoteKind.DCS_UNAVAILABLE if trouble else NoteKind.DCS_AVAILABLE,
            "etcd",
            trouble or "etcd answers again",
        )
        state.ask_health()


def _tick(state: ClusterState, event: ev.Tick) -> None:
    """Do nothing: every step looks at the deadlines, and a Tick only brings the time."""


def _checked(handler: Callable[[ClusterState, Any], None]) -> Callable[[ClusterState, Any], None]:
    """Wrap a handler so that it gets messages of the node's current agent only, and none that cannot be
    true."""

    def handle(state: ClusterState, event: Any) -> None:
        what = plausible.ROWS[type(event)].what
        if nodes.known(state, event.node, event.incarnation, what) and plausible.fits(state, event):
            handler(state, event)

    return handle


HANDLERS: dict[type[Any], Callable[[ClusterState, Any], None]] = {
    ev.Elected: takeover.elected,
    ev.NodeJoined: nodes.joined,
    ev.NodeBeat: nodes.beat,
    ev.StepBeat: nodes.step_beat,
    ev.NodesHeard: nodes.heard,
    ev.MemberReport: nodes.report,
    ev.NodeBroken: nodes.broken,
    ev.DeviceReport: nodes.device,
    ev.MemberStarted: _checked(members.started),
    ev.SnapshotReady: _checked(releasing.snapshot),
    ev.SnapshotVouched: _checked(vouching.vouched),
    ev.PartPersisted: _checked(finalizing.part_persisted),
    ev.Persisted: _checked(finalizing.persisted),
    ev.PersistFailed: _checked(saving.persist_failed),
    ev.Published: _checked(suspects.published),
    ev.Mirrored: _checked(finalizing.mirrored),
    ev.Collected: _checked(retention.collected),
    ev.Scrubbed: _checked(scrubbing.scrubbed),
    ev.CheckpointAsked: _checked(requests.asked),
    ev.CheckpointsFound: adopting.found,
    ev.Loaded: _checked(loading.loaded),
    ev.Fetched: _checked(loading.fetched),
    ev.OrderFailed: _checked(members.order_failed),
    ev.PeersLooked: _checked(network.looked),
    ev.NodeChecked: _checked(node_checks.answered),
    ev.NodeJudged: node_checks.judged,
    ev.ProbeAnswered: mass_failure.answered,
    ev.DcsChanged: _dcs_changed,
    ev.QuarantineReleased: quarantine.release,
    ev.StacksCollected: _checked(breaks.collected),
    ev.UserFault: _checked(numeric_faults.faulted),
    ev.ReplicasReported: _checked(corrupt_state.compared),
    ev.NodeReplaced: replacement.replaced,
    ev.NodeLeaving: _checked(draining.leaving),
    ev.DrainRequested: draining.requested,
    ev.CordonRequested: draining.cordon,
    ev.JobSubmitted: submission.submitted,
    ev.JobStopRequested: ending.stop_requested,
    ev.JobDeleteRequested: deleting.requested,
    ev.PauseRequested: pausing.requested,
    ev.CheckpointWanted: pausing.checkpoint,
    ev.Diagnosed: health.diagnosed,
    ev.CauseFound: recurring.found,
    ev.RecordsJudged: breaks.judged,
    ev.Stored: _stored,
    ev.StoreFailed: _store_failed,
    ev.LeaderDeaf: nodes.unheard,
    ev.Tick: _tick,
}
"""For each class of events, the function that records its facts."""


def _wait(state: ClusterState, job: Job) -> None:
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
        self.state = ClusterState(settings)

    @property
    def term(self) -> int:
        """The leader term, which is also the fencing token; 0 until elected."""
        return self.state.term

    @property
    def counts(self) -> dict[str, int]:
        """Messages dropped or refused so far, by kind."""
        return self.state.counts

    @property
    def incidents(self) -> list[Incident]:
        """Closed incidents of this term, oldest first."""
        return self.state.incidents

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take one event at time `now` (s, never going back) and return what is to be done.

        Due deadlines are handled in the same step. AssertionError when decisions do not settle, or a job
        would make a forbidden change of phase: the process ends before anything wrong is sent."""
        state = self.state
        state.now = max(state.now, now)
        if state.fenced:
            return []
        if state.term == 0 and not isinstance(event, ev.Elected):
            return self._unelected(event)
        HANDLERS[type(event)](state, event)
        for kind, name in state.deadlines.due(state.now):
            _DUE[kind](state, name)
        for _ in range(ROUNDS_MAX):
            if not state.dirty:
                return state.take()
            for name in list(state.dirty):
                del state.dirty[name]
                _drive(state, state.jobs[name])
        raise AssertionError(f"decisions do not settle for {', '.join(state.dirty)}")

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
        return self.state.fenced

    def unstored(self, job: str) -> tuple[int, ...]:
        """Tickets of writes that etcd does not hold yet: spec, state and generation of this job."""
        return tuple(pending.effect.ticket for pending in self.state.write_queues.get(f"job/{job}", ()))

    def unrecorded(self, job: str) -> tuple[int, ...]:
        """Tickets of writes that etcd does not hold yet: checkpoint records of this job."""
        return tuple(
            pending.effect.ticket for pending in self.state.write_queues.get(finalizing.queue_of(job), ())
        )

    def next_deadline(self, steady: bool = False) -> float:
        """When (s, clock of `now`) a Tick is due at the latest; infinity: no deadline is set.

        `steady`: every node will send something by then, so the nodes' own timeouts do not count."""
        return self.state.deadlines.next_but("node") if steady else self.state.deadlines.next()

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        invariants.check(self.state)


def _drive(state: ClusterState, job: Job) -> None:
    """Advance a job as far as the facts allow: judge new evidence, then its phase, then everything beside
    it."""
    if job.recovery.unjudged:
        incidents.take(state, job)
    if job.ending is None:
        before = job.phase
        PHASES[job.phase](state, job)
        if job.phase is not before or job.recovery.unjudged:
            state.touch(job)
        hangs.reconcile(state, job)
        breaks.reconcile(state, job)
        saving.reconcile(state, job)
        pausing.reconcile(state, job)
        swapping.reconcile(state, job)
        resizing.reconcile(state, job)
        draining.tidy(state, job)
        spares.reconcile(state, job)
        replica_holders.reconcile(state, job)
        leftovers.reconcile(state, job)
    members.kill_zombies(state, job)


def _due_job(state: ClusterState, name: str) -> None:
    """Drive a job whose deadline has come, unless it is gone."""
    if name in state.jobs:
        state.touch(state.jobs[name])


_DUE: dict[str, Callable[[ClusterState, str], None]] = {
    "job": _due_job,
    "node": nodes.deadline,
    "drain": draining.deadline,
    "guard": nodes.guard_due,
    "hold": eligibility.hold_over,
    "quarantine": quarantine.expired,
    "cut": network.look_again,
    "check": node_checks.due,
    "health": lambda state, _name: health.due(state),
    "replace": lambda state, _name: replacement.due(state),
    "watch": lambda state, _name: overdue.due(state),
    "nodes": lambda state, _name: state.look_at_nodes(),
    "queue": lambda state, queue: state.pump(queue),
}
"""For each kind of deadline, the function that handles it."""
