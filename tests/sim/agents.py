"""Simulated agents with their launchers: orders in, reports and beats out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core import effects as fx
from controlplane.core import events as ev
from controlplane.core.model import (
    NO_STEP,
    Cause,
    Failure,
    MemberPhase,
)
from tests.sim import fencing, numbers
from tests.sim.hanging import collect
from tests.sim.parting import look
from tests.sim.ranks import IN_GROUP, Rank
from tests.sim.restores import RESTORE_ORDERS, Kept, push
from tests.sim.saves import SAVE_ORDERS
from tests.sim.streams import Valve

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.model import Partner
    from tests.sim.world import World


class Agent:
    """One node. Its launcher's members outlive the agent, not the node."""

    def __init__(self, world: World, name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.slots = slots
        self.incarnation = 1
        self.boots = 1
        self.seq = 0
        self.term = 0
        self.port = 1000
        self.up = True
        self.muted_until = 0.0  # the leader hears nothing of it, but its door opens
        self.refused_at = -1e9  # when it was last asked directly, and could not answer
        self.cut_until = 0.0  # no packet passes to or from the leader
        self.inbound, self.outbound = Valve(), Valve()
        self.sure_at = 0.0  # when it last knew that nothing was given away behind its back
        self.apart_at = 0.0  # when it last came back from where the leader did not reach it
        self.linked = 0  # the term of the leader that it has a stream to, 0: none
        self.ranks: dict[str, Rank] = {}
        self.answers: dict[tuple[Any, ...], ev.Event] = {}  # to orders that are done
        self.partners: tuple[Partner, ...] = ()
        self.copies: list[Kept] = []  # of other nodes' snapshots
        self.leaving = self.marked = False
        self.gone = False  # its node is down, and nobody mends it
        self.bad: list[str] = []  # devices
        world.clock.after(world.rng.uniform(0.0, 0.5), self._beat)

    # -------------------------------------------------------------- towards the leader

    def connect(self) -> None:
        """Say hello to the leader there is."""
        if not self.up or self.world.clock.now < self.cut_until or self.world.cluster is None:
            return
        if self.inbound.shut or self.outbound.shut:
            return
        self.linked, self.apart_at = self.world.term, self.world.clock.now
        hello = ev.NodeJoined(
            self.name,
            self.incarnation,
            f"{self.name}/{self.boots}",
            self.name,
            self.slots,
            self.port,
            tuple(rank.status() for rank in self.ranks.values()),
            peer=f"{self.name}:peer",
            copies=tuple(kept.told for kept in self.copies),
        )
        self.world.feed(hello)
        for device in self.bad:
            self.send(ev.DeviceReport(self.name, self.incarnation, device, False, "a test"))

    def send(self, event: Any) -> None:
        """A message on the stream, if there is one; the network does what it does."""
        term = self.linked
        heard = term == self.world.term or term in self.world.frozen
        if self.up and heard and self.world.clock.now >= self.cut_until:
            deliver = self.world.feed_if
            self.world.network(lambda: self.outbound.through(lambda: deliver(term, event)))

    def _beat(self) -> None:
        self.world.clock.after(1.0, self._beat)
        if not self.up or (self.inbound.shut and self.outbound.shut):
            return
        fencing.watch(self)
        self.port += 1
        if self.linked != self.world.term or self.world.cluster is None:
            self.connect()
            return
        self.seq += 1
        statuses = tuple(rank.status() for rank in self.ranks.values())
        copies = tuple(kept.told for kept in self.copies)
        self.send(ev.NodeBeat(self.name, self.incarnation, self.seq, self.port, statuses, copies))
        for rank in self.ranks.values():
            for request in rank.asks if rank.alive else ():
                self.ask(rank, request)
            numbers.tell(rank)

    def report(self, rank: Rank) -> None:
        """Something about a member changed."""
        self.seq += 1
        self.send(ev.MemberReport(self.name, self.incarnation, self.seq, rank.status()))

    def started(self, rank: Rank) -> None:
        """A member completed its first step of a generation."""
        job, number = rank.spec.job, rank.generation
        self.send(
            ev.MemberStarted(
                self.name, self.incarnation, rank.name, job, number, rank.held - 1, 0.1, 0.1, 0.1
            )
        )

    def snapshot_ready(self, rank: Rank, step: int) -> None:
        """A slot is READY."""
        self.send(
            ev.SnapshotReady(self.name, self.incarnation, rank.name, rank.spec.job, rank.generation, step)
        )

    # -------------------------------------------------------------- orders

    def take(self, term: int, order: Any) -> None:
        """One order. Orders of an older term are dropped."""
        if not self.up or term < self.term:
            return
        self.term = term
        ORDERS[type(order)](self, order)

    def launch(self, order: fx.Launch) -> None:
        rank = self.ranks.get(order.member)
        if rank is None:
            rank = Rank(order.member, order.spec, self, order.role, elastic=self.world.elastic)
            self.ranks[order.member] = rank
            self._later(0.3, rank, lambda: self._warm(rank))
        rank.rank = order.rank if rank.generation == 0 else rank.rank
        if self.world.launch_shows and order.generation is not None:
            rank.launched_under = order.generation.number
        if not order.warm_only and rank.phase is MemberPhase.WARM:
            self._start(rank)
        rank.script = rank.script or not order.warm_only

    def _later(self, delay: float, rank: Rank, do: Callable[[], None]) -> None:
        self.world.clock.after(delay * self.world.rng.uniform(0.5, 1.5), lambda: do() if rank.alive else None)

    def _warm(self, rank: Rank) -> None:
        rank.phase = MemberPhase.WARM
        self.report(rank)
        if rank.script:
            self._start(rank)

    def _start(self, rank: Rank) -> None:
        rank.phase = MemberPhase.STARTING
        self.report(rank)
        if rank.elastic:
            self._later(0.5, rank, lambda: self._ready(rank, fresh=True))
        else:
            rank.plain_left = self.world.steps
            self._later(self.world.step_s * self.world.steps, rank, lambda: self._plain_end(rank))

    def _plain_end(self, rank: Rank) -> None:
        self.exit(rank, Failure(Cause.EXITED, "exit code 0", exit_code=0))

    def _ready(self, rank: Rank, fresh: bool = False) -> None:
        if rank.stopped or (fresh and rank.phase is not MemberPhase.STARTING):
            return
        rank.phase, rank.failure = MemberPhase.READY, None
        self.report(rank)

    def interrupt(self, order: fx.Interrupt) -> None:
        for rank in self.ranks.values():
            if self.world.fences and not order.gentle:
                rank.fence = max(rank.fence, order.generation)
            if order.gentle and rank.generation == order.generation and not rank.wedged:
                rank.halt, rank.keep = order.generation, order.generation if order.keep else rank.keep
            elif rank.phase in IN_GROUP and rank.generation <= order.generation and not rank.wedged:
                self.stop_soon(rank, order.generation)

    def stop_soon(self, rank: Rank, generation: int) -> None:
        """Have it leave this generation, and older ones, for the barrier."""
        self._later(0.05, rank, lambda: self._stop(rank, generation))

    def _stop(self, rank: Rank, generation: int) -> None:
        if rank.phase not in IN_GROUP or rank.generation > generation or rank.stopped:
            return
        if rank.phase is MemberPhase.RUNNING and self.world.rng.random() < self.world.dirty_chance:
            rank.held = NO_STEP
        self.leave_group(rank)

    def leave_group(self, rank: Rank) -> None:
        """Back to the barrier; with a snapshot of where it stands, if that was asked for."""
        if rank.keep >= rank.generation > 0 and rank.held > 0 and not rank.stopped:
            rank.save()
        self._ready(rank)

    def form(self, order: fx.Form) -> None:
        generation = order.generation
        for seat in generation.seats:
            rank = self.ranks.get(seat.member) if seat.node == self.name else None
            if rank is None or not rank.alive or rank.generation >= generation.number > 0:
                continue
            if rank.fence >= generation.number:
                continue
            if rank.phase is not MemberPhase.READY and rank.phase not in IN_GROUP:
                continue
            if rank.world_size != generation.world_size:
                rank.built = False  # what it holds is another part, from now on
            rank.generation, rank.rank, rank.phase = generation.number, seat.rank, MemberPhase.FORMING
            rank.world_size = generation.world_size
            rank.failure = None
            self.report(rank)
            self.world.group(generation).join(seat.rank, rank)

    def kill(self, order: fx.Kill) -> None:
        rank = self.ranks.get(order.member)
        if rank is not None and rank.alive:
            self.exit(rank, Failure(Cause.SIGNALED, "killed by signal 9", signal=9))

    def complete(self, order: fx.Complete) -> None:
        self.copies, self.partners = [], ()
        for rank in self.ranks.values():
            if rank.spec.job == order.job and rank.alive:
                self.exit(rank, _at_the_end(rank, order))

    def release(self, order: fx.Release) -> None:
        push(self, order.step)
        for rank in self.ranks.values():
            rank.released = max(rank.released, order.step)
            rank.void = max(rank.void, order.void_step)
            if rank.phase is MemberPhase.FINISHED and rank.held not in rank.slots:
                rank.save()

    def exit(self, rank: Rank, failure: Failure) -> None:
        """The process is gone; the launcher sees it at once."""
        rank.phase, rank.failure, rank.stopped = MemberPhase.EXITED, failure, False
        self.report(rank)

    # -------------------------------------------------------------- checkpoints

    def ask(self, rank: Rank, request: str) -> None:
        """A script wants a checkpoint; said again with every beat until it is told."""
        step, generation = rank.asks[request]
        self.send(
            ev.CheckpointAsked(
                self.name, self.incarnation, rank.spec.job, rank.name, generation, step, request
            )
        )

    def told(self, order: fx.CheckpointTold) -> None:
        rank = self.ranks.get(order.member)
        if rank is not None:
            rank.asks.pop(order.request, None)

    def drained(self, order: fx.Drained) -> None:
        """The node is free: an agent that was told to end does so."""
        if self.leaving:
            self.leaving = False
            self.down()
            self.world.broken(self)
            self.world.clock.after(self.world.rng.uniform(1.0, 20.0), self.reboot)

    # -------------------------------------------------------------- faults

    def sigterm(self, grace_s: float) -> None:
        """The machine is to go away."""
        self.leaving = True
        self.send(ev.NodeLeaving(self.name, self.incarnation, "SIGTERM", grace_s))
        self.world.clock.after(grace_s + 1.0, lambda: self.drained(fx.Drained(self.name, "its time is over")))

    def sense(self, device: str, healthy: bool) -> None:
        """A sensor's word."""
        self.bad = [d for d in self.bad if d != device] + ([] if healthy else [device])
        self.send(ev.DeviceReport(self.name, self.incarnation, device, healthy, "a test"))

    def well(self) -> None:
        """Devices are mended, marks are taken off: told again until it is heard."""
        for device in self.bad:
            self.send(ev.DeviceReport(self.name, self.incarnation, device, True, ""))
        node = self.world.cluster.machine.nodes.get(self.name) if self.world.cluster else None
        if self.marked or (node is not None and node.excluded):
            self.world.feed(ev.CordonRequested(self.name, False, ""))
        self.world.clock.after(5.0, self.well)

    def mend(self) -> None:
        """Somebody brings the machine back after all."""
        if self.gone:
            self.gone = False
            self.reboot()

    def restart(self) -> None:
        """The agent process is killed and comes back; its ranks do not notice."""
        self.incarnation += 1
        self.seq, self.linked, self.sure_at = 0, 0, self.world.clock.now
        self.answers, self.partners = {}, ()

    def reboot(self) -> None:
        """The whole node goes down and comes back empty."""
        if self.gone:
            return
        self.up = True
        self.boots += 1
        self.restart()

    def down(self) -> None:
        """Power off: ranks and arenas are gone."""
        self.up = False
        for rank in self.ranks.values():
            rank.phase = MemberPhase.EXITED
        self.ranks, self.copies = {}, []
        self.world.safety.memory_lost = True


def _at_the_end(rank: Rank, order: fx.Complete) -> Failure:
    """Who has finished ends by itself, as does who waits at the barrier of a job that went well; others,
    whose work is not done, are killed."""
    waits = rank.phase is MemberPhase.READY and order.ok
    if rank.phase is MemberPhase.FINISHED or waits:
        return Failure(Cause.EXITED, "the job is over", exit_code=0)
    return Failure(Cause.SIGNALED, f"killed by signal 9: the job is over: {order.reason}", signal=9)


ORDERS: dict[type[Any], Callable[[Agent, Any], None]] = {
    fx.Launch: Agent.launch,
    fx.Interrupt: Agent.interrupt,
    fx.Form: Agent.form,
    fx.Kill: Agent.kill,
    fx.Complete: Agent.complete,
    fx.Release: Agent.release,
    fx.Drained: Agent.drained,
    fx.CheckpointTold: Agent.told,
    fx.LookAtPeers: look,
    fx.CollectStacks: collect,
    **RESTORE_ORDERS,
    **SAVE_ORDERS,
}
