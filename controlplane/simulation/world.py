"""Drive the real decision core, among simulated nodes, etcd and network, through a list of failures.

Heartbeats are not sent one by one: one event says that all nodes that are up have beaten until now
(`NodesHeard`). It comes before each failure and each return of a node, and before any other event when the
last one is older than a third of the node timeout. The core's orders go to `SimulatedOrders`, whose simulated
nodes report back after the setup's delays."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from controlplane.core.cluster import Cluster
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, Failure, JobSpec, MemberPhase
from controlplane.core.records.timing import CoreSettings
from controlplane.core.state.job import ENDED
from controlplane.simulation.costs import ETCD_S, NET_S
from controlplane.simulation.orders import ORDERS, SimulatedOrders
from controlplane.simulation.scene import Scene
from controlplane.simulation.situation import SimulatedSituation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.core.records.events import Event
    from controlplane.core.records.model import Incident
    from controlplane.simulation.agents import Agent
    from controlplane.simulation.costs import Setup
    from controlplane.simulation.failures import Failures, Outage

JOB = "job"


class SimulationError(RuntimeError):
    """The core ended the job or refused a simulated node, so that the run has no result."""


def job_of(setup: Setup) -> JobSpec:
    """Return the job's spec as a user would submit it: SDK, snapshots as copies, no storage, no replicas."""
    return JobSpec(
        job=JOB, argv=("train.py",), cwd="/", nnodes_min=setup.least, nnodes_max=setup.nodes_max,
        nproc_per_node=setup.nproc, replica_nodes=setup.nodes_per_replica, max_restarts=1_000_000,
        snapshot_every=setup.steps_per_checkpoint, replicas=0,
    )  # fmt: skip


def settings_of(setup: Setup) -> CoreSettings:
    """Return the core's own defaults with a few changes for this setup.

    A node is lost after `detect_s`. A job shrinks at once, and does not wait for more nodes at its start, nor
    a node for its name. The timeouts for stopping and forming fit the setup's delays. Health, which decides
    nothing here, is looked at once a day."""
    defaults = CoreSettings()
    longest = max(setup.costs.stop_s, setup.costs.spawn_s, setup.costs.form_s + setup.costs.restore_s)
    return CoreSettings(
        node_timeout_s=setup.costs.detect_s,
        stop_timeout_s=max(defaults.stop_timeout_s, 2 * longest),
        form_timeout_s=max(defaults.form_timeout_s, 2 * longest),
        shrink_after_s=0.0,
        conflict_s=0.0,
        join_grace_s=0.0,
        health_every_s=86_400.0,
    )


class World(Scene):
    """One run. After `run()`, `ledger`, `training` and `incidents` hold the result."""

    def __init__(self, setup: Setup, failures: Failures, settings: CoreSettings | None = None) -> None:
        super().__init__(setup)
        self.failures = failures
        self.settings = settings or settings_of(setup)
        self.situation = SimulatedSituation(self)
        self.orders = SimulatedOrders(self, self.situation, self.feed, self.report, self.at_once)
        self.cluster = Cluster(self.settings)
        self.events = 0  # steps of the core
        self.heard_at = 0.0  # when (s) the core last heard of all nodes that are up
        self._unjudged: dict[str, None] = {}  # nodes that are down and that the core has not given up yet
        self.struck = 0  # failures of nodes that trained, or that had ranks while nothing trained
        self.spared = 0  # failures of all other nodes that were up
        self._beating: tuple[tuple[str, int], ...] | None = None
        self._queue: deque[Event] = deque()
        self._armed = -1.0
        self._feeding = False
        self._together = False

    @property
    def incidents(self) -> Sequence[Incident]:
        """The incidents that the core has closed, oldest first."""
        return self.cluster.incidents

    def run(self) -> None:
        """Simulate all of it. Raises SimulationError when the core ends the job."""
        self.feed(ev.Elected(1))
        for agent in self.agents:
            self.feed(agent.joined(self.setup.nproc))
        self.feed(ev.JobSubmitted(job_of(self.setup)))
        for outage in self.failures.outages:
            if outage.start_s < self.end_s:
                self.clock.at(outage.start_s, lambda outage=outage: self._strike(outage))  # type: ignore[misc]
        self.clock.run(self.end_s)
        self.situation.book()
        self.training.settle(None, self.end_s)
        phase = self.cluster.state.jobs[JOB].phase
        if phase in ENDED:
            raise SimulationError(f"the job is {phase}: {self.cluster.state.jobs[JOB].reason}")

    # ------------------------------------------------------------ failures

    def _strike(self, outage: Outage) -> None:
        agent = self.agents[outage.node]
        if not agent.up:
            return
        self._refresh()
        if outage.process:
            self._kill_rank(agent, outage)
            return
        self._stopped(agent)
        self.situation.book()
        agent.up, agent.ranks = False, {}
        self.down[agent.name] = outage
        self._unjudged[agent.name] = None
        self._beating = None
        event = ev.NodeBroken(agent.name, agent.boots, f"{outage.cause}: connection reset")
        self.clock.after(NET_S, lambda: self.feed(event))
        if outage.end_s < math.inf:
            self.clock.at(outage.end_s, lambda: self._return(agent))

    def _stopped(self, agent: Agent) -> None:
        """Halt the training if this node had a part in it; count the failure either way."""
        stretch = self.training.stretch
        trains = self.training.on and stretch is not None
        if any(not trains or rank.generation == stretch.generation for rank in agent.ranks.values()):  # type: ignore[union-attr]
            self.struck += 1
            self.situation.failed()
        else:
            self.spared += 1

    def _return(self, agent: Agent) -> None:
        self._refresh()
        self.situation.book()
        del self.down[agent.name]
        self._unjudged.pop(agent.name, None)
        self._beating = None
        self.feed(agent.joined(self.setup.nproc))

    def _kill_rank(self, agent: Agent, outage: Outage) -> None:
        alive = [rank for rank in agent.ranks.values() if rank.phase is not MemberPhase.EXITED]
        self._stopped(agent)
        if not alive:
            return
        rank = alive[0]
        rank.phase, rank.failure = MemberPhase.EXITED, Failure(Cause.SIGNALED, outage.cause, signal=9)
        rank.step = self.training.steps(self.clock.now) if rank.generation else rank.step
        self.clock.after(self.setup.costs.detect_s, lambda: self.report(agent))

    # ------------------------------------------------------------ the core

    def report(self, agent: Agent) -> None:
        """Send the core a heartbeat of this node, if it is up."""
        if agent.up:
            self.feed(agent.beat(JOB))

    def feed(self, event: Event) -> None:
        """Give the core one event, after those that wait already.

        An event may come from within a step of the core; it is queued then. When the last heartbeats are too
        long ago, they come first, or the core would find nodes silent that are up."""
        self._queue.append(event)
        if self._feeding:
            return
        self._feeding = True
        while self._queue:
            if self.clock.now - self.heard_at > self.settings.node_timeout_s / 3:
                self._refresh()
            self._step(self._queue.popleft())
        self._feeding = False
        if not self._together:
            self._arm()

    def at_once(self, report: Callable[[], None]) -> None:
        """Call `report`, in which many nodes report at one moment. The core's next deadline is looked up only
        after the last report."""
        self._together = True
        report()
        self._together = False
        self._arm()

    def _refresh(self) -> None:
        """Report to the core, in one event, that all nodes that are up have sent heartbeats until now."""
        if self._beating is None:
            self._beating = tuple((agent.name, agent.boots) for agent in self.agents if agent.up)
        self.heard_at = self.clock.now
        self._step(ev.NodesHeard(self._beating))

    def _step(self, event: Event) -> None:
        self.events += 1
        effects = self.cluster.step(self.clock.now, event)
        if not effects:
            return
        orders_by_kind: dict[type[Any], list[Any]] = {}
        for effect in effects:
            kind = type(effect)
            if isinstance(effect, fx.STORES):
                self._store(effect)
            elif kind in ORDERS:
                orders_by_kind.setdefault(kind, []).append(effect)
            elif kind in SEEN:
                SEEN[kind](self, effect)
        for kind, orders in orders_by_kind.items():
            ORDERS[kind](self.orders, orders)

    def _store(self, effect: fx.Store) -> None:
        self.clock.after(ETCD_S, lambda: self.feed(ev.Stored(effect.ticket)))

    def _refused(self, effect: fx.Refuse) -> None:
        raise SimulationError(f"node {effect.node} was refused: {effect.reason}")

    def _arm(self) -> None:
        """Schedule a Tick at the core's next deadline. The nodes' own deadlines count only while a node is
        down that the core has not given up: all others are heard in time."""
        at = self.cluster.next_deadline(steady=not self._suspects())
        if at == math.inf or (self.clock.now < self._armed <= at):
            return
        self._armed = at

        def tick() -> None:
            if self._armed == at:
                self._armed = -1.0
            self.feed(ev.Tick())

        self.clock.at(at, tick)

    def _suspects(self) -> bool:
        """Whether a node is down that the core has not given up yet."""
        if self._unjudged:
            nodes = self.cluster.state.nodes
            self._unjudged = {name: None for name in self._unjudged if nodes[name].state != "lost"}
        return bool(self._unjudged)


SEEN: dict[type[Any], Callable[[World, Any], None]] = {
    fx.Refuse: World._refused,
    fx.Judged: lambda world, effect: world.situation.judged(effect),
    fx.JobChanged: lambda world, effect: world.situation.changed(effect),
}
