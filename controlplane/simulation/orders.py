"""Carry out the core's orders on simulated nodes, after the setup's delays.

The nodes that get an order in the same step answer together, at one moment. Orders are levels: a repeated
order does not begin again what is under way. A node that went down in between, even if it is back, does not
answer any more: its incarnation (`boots`) is another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import NO_STEP, MemberPhase
from controlplane.simulation import records
from controlplane.simulation.agents import Agent, shard_id
from controlplane.simulation.costs import NET_S
from controlplane.simulation.ranks import Rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.core.records.events import Event
    from controlplane.core.records.model import Generation
    from controlplane.simulation.scene import Scene
    from controlplane.simulation.situation import SimulatedSituation
    from controlplane.simulation.training import TrainedStretch

Batch = list[tuple[Agent, int]]
"""Nodes, each with its incarnation (`boots`) when it got the order."""


class Meeting:
    """A generation that is being formed: its ranks by node and member, and the nodes that are not ready."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.seats: dict[str, dict[str, int]] = {}
        for seat in generation.seats:
            self.seats.setdefault(seat.node, {})[seat.member] = seat.rank
        self.missing = dict.fromkeys(self.seats)


class SimulatedOrders:
    """Carries out each kind of order for all simulated nodes."""

    def __init__(
        self,
        scene: Scene,
        situation: SimulatedSituation,
        feed: Callable[[Event], None],
        report: Callable[[Agent], None],
        at_once: Callable[[Callable[[], None]], None],
    ) -> None:
        """`feed` gives the core an event, `report` sends it one node's statuses, and `at_once` calls a
        function that does so for many nodes."""
        self.scene, self.situation = scene, situation
        self._feed, self._report, self._at_once = feed, report, at_once
        self.meeting: Meeting | None = None
        setup = scene.setup
        self.ranks_per_replica = setup.nodes_per_replica * setup.nproc
        self._left: tuple[float, TrainedStretch | None, int, int] = (-1.0, None, 0, NO_STEP)
        # A cache: the same for all nodes that leave together. (when (s), stretch, steps, copied step)

    def launch(self, orders: Sequence[fx.Launch]) -> None:
        """Start rank processes."""
        fresh: Batch = []
        for order in orders:
            agent = self.scene.by_name[order.node]
            if not agent.up or order.member in agent.ranks:
                continue
            old = agent.ranks.values()
            gone = [r.name for r in old if r.failure is not None or r.rank == order.rank >= 0]
            fresh_rank = Rank(order, shard_id(order.rank, self.ranks_per_replica))
            for name in gone:  # a dead process's snapshots stay in its arena
                left = agent.ranks.pop(name)
                fresh_rank.copied, fresh_rank.copied_by = left.copied, left.copied_by
            agent.ranks[order.member] = fresh_rank
            if not fresh or fresh[-1][0] is not agent:
                fresh.append((agent, agent.boots))
        setup = self.scene.setup
        first = self.situation.cause == "start"
        delay_s = setup.first_start_s if first else setup.costs.spawn_s
        self._later(NET_S, fresh, lambda agent: True)
        self._later(NET_S + delay_s, fresh, _started)

    def interrupt(self, orders: Sequence[fx.Interrupt]) -> None:
        """Leave a generation: at once or, if the order is gentle, at the end of the step."""
        scene, batch = self.scene, []
        for order in orders:
            agent = scene.by_name[order.node]
            if agent.up and agent.stopping < order.generation and agent.in_generation(order.generation):
                agent.stopping = order.generation
                batch.append((agent, agent.boots))
        if not batch:
            return
        number, gentle = orders[0].generation, orders[0].gentle
        training, now = scene.training, scene.clock.now
        if gentle and training.on:
            # Counted from when the order arrives: the step that is being made then is completed.
            end = training.boundary(now + NET_S)
            scene.clock.at(end, self._halt)
            self._later(end - now + NET_S, batch, lambda agent: self._leave(agent, number, clean=True))
            return
        self._halt()
        self._later(
            NET_S + scene.setup.costs.stop_s, batch, lambda agent: self._leave(agent, number, clean=False)
        )

    def _halt(self) -> None:
        self.situation.book()
        if self.scene.training.on:
            self.scene.training.halt(self.scene.clock.now)

    def _leave(self, agent: Agent, upto: int, clean: bool) -> bool:
        training, now = self.scene.training, self.scene.clock.now
        if self._left[0] != now or self._left[1] is not training.stretch:
            self._left = (now, training.stretch, training.steps(now), training.copied(now))
        _, stretch, steps, copied = self._left
        trained = stretch.generation if stretch is not None else -1
        for rank in agent.in_generation(upto):
            if rank.generation == trained and rank.phase is MemberPhase.RUNNING:
                rank.step = steps
                if copied > NO_STEP:
                    rank.copied, rank.copied_by = copied, rank.generation
            rank.phase = MemberPhase.READY
            whole = rank.step > NO_STEP and (clean or self.scene.setup.donors)
            rank.held = rank.step if whole else NO_STEP
        return True

    def form(self, orders: Sequence[fx.Form]) -> None:
        """Form a generation: build the groups, put the state in place, and train when all nodes are there."""
        generation = orders[0].generation
        if self.meeting is None or self.meeting.generation.number != generation.number:
            self.meeting = Meeting(generation)
            self.scene.clock.after(NET_S + self.scene.setup.costs.form_s, self.situation.restoring)
        batch: Batch = []
        for order in orders:
            agent = self.scene.by_name[order.node]
            if agent.up and self._enter(agent, self.meeting):
                batch.append((agent, agent.boots))
        costs, number = self.scene.setup.costs, generation.number
        self._later(NET_S, batch, lambda agent: True)
        self._later(NET_S + costs.form_s + costs.restore_s, batch, lambda agent: self._run(agent, number))

    def _enter(self, agent: Agent, meeting: Meeting) -> bool:
        seats = meeting.seats.get(agent.name, {})
        entered = False
        for name, seat in seats.items():
            rank = agent.ranks.get(name)
            if rank is None or rank.phase is not MemberPhase.READY:
                continue
            rank.phase, rank.generation, rank.rank = MemberPhase.FORMING, meeting.generation.number, seat
            rank.shard, entered = shard_id(seat, self.ranks_per_replica), True
        return entered

    def _run(self, agent: Agent, number: int) -> bool:
        meeting = self.meeting
        if meeting is None or meeting.generation.number != number or agent.stopping >= number:
            return False
        ranks = [rank for rank in agent.ranks.values() if rank.generation == number]
        if not ranks or any(rank.phase is not MemberPhase.FORMING for rank in ranks):
            return False
        for rank in ranks:
            rank.phase, rank.held = MemberPhase.RUNNING, NO_STEP
            rank.step = meeting.generation.resume.step
            if rank.step > 0:  # the state that it was restored from serves a later restart as a copy
                rank.copied, rank.copied_by = rank.step, number
        meeting.missing.pop(agent.name, None)
        if not meeting.missing:
            self._train(meeting)
        return True

    def _train(self, meeting: Meeting) -> None:
        """Begin the training: all nodes of the generation are ready."""
        scene, generation = self.scene, meeting.generation
        self.situation.begun()
        scene.training.begin(generation.number, len(meeting.seats), generation.resume.step, scene.clock.now)
        scene.clock.after(scene.setup.step_s + NET_S, lambda: self._first_step(meeting))

    def _first_step(self, meeting: Meeting) -> None:
        scene, generation = self.scene, meeting.generation
        stretch = scene.training.stretch
        if stretch is None or stretch.generation != generation.number or not scene.training.on:
            return
        costs = scene.setup.costs
        spans_s = (costs.form_s, costs.restore_s, scene.setup.step_s)

        def report() -> None:
            for seat in generation.seats:
                self._feed(records.started(seat, scene.by_name[seat.node].boots, generation, spans_s))

        self._at_once(report)

    def kill(self, orders: Sequence[fx.Kill]) -> None:
        """Kill processes: their agents list them no more."""
        batch: Batch = []
        for order in orders:
            agent = self.scene.by_name[order.node]
            if agent.up and agent.ranks.pop(order.member, None) is not None:
                batch.append((agent, agent.boots))
        self._later(NET_S, batch, lambda agent: True)

    def complete(self, orders: Sequence[fx.Complete]) -> None:
        """End all processes of the job on these nodes."""
        batch: Batch = []
        for order in orders:
            agent = self.scene.by_name[order.node]
            if agent.up and agent.ranks:
                agent.ranks = {}
                batch.append((agent, agent.boots))
        self._later(NET_S, batch, lambda agent: True)

    def probe(self, orders: Sequence[fx.Probe]) -> None:
        """Answer a probe of each node: whether it is up."""
        for order in orders:
            up = self.scene.by_name[order.node].up
            event = ev.ProbeAnswered(order.node, order.incarnation, up, "" if up else "no route to host")
            self.scene.clock.after(NET_S, lambda event=event: self._feed(event))  # type: ignore[misc]

    def _later(self, delay_s: float, batch: Batch, do: Callable[[Agent], bool]) -> None:
        """After `delay_s`, call `do` for each node of the batch in the same incarnation; if it returns True,
        the node reports its ranks."""
        if not batch:
            return

        def answer() -> None:
            for agent, boots in batch:
                if agent.up and agent.boots == boots and do(agent):
                    self._report(agent)

        self.scene.clock.after(delay_s, lambda: self._at_once(answer))


def _started(agent: Agent) -> bool:
    """Bring a node's starting ranks to the barrier. Whether there were any."""
    fresh = [rank for rank in agent.ranks.values() if rank.phase is MemberPhase.STARTING]
    for rank in fresh:
        rank.phase = MemberPhase.READY
    return bool(fresh)


ORDERS: dict[type[Any], Callable[[SimulatedOrders, Any], None]] = {
    fx.Launch: SimulatedOrders.launch,
    fx.Interrupt: SimulatedOrders.interrupt,
    fx.Form: SimulatedOrders.form,
    fx.Kill: SimulatedOrders.kill,
    fx.Complete: SimulatedOrders.complete,
    fx.Probe: SimulatedOrders.probe,
}
