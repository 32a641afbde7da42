"""Simulate nodes: the agent's own core on a virtual clock, with simulated launcher, rank server and stream.

What an agent decides is decided by `agent.deciding`, as in production: what becomes of orders, of ranks'
messages and silence, and of a process's end; what is reported, kept for the next agent, and sent again to the
next leader; when ranks are fenced. This module only carries its effects out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.deciding import effects as do
from agent.deciding import events as heard
from agent.deciding.aggregate import AgentCore
from agent.deciding.judging import Reading, Tick
from agent.deciding.member import recalled
from agent.deciding.node_state import AgentFacts
from agent.deciding.orders import TABLE as DECIDED
from agent.deciding.outbox import Outbox
from agent.deciding.progress import HangLimits, PageReading
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import NO_STEP, MemberPhase, Standing
from tests.sim import checking, fencing, launching
from tests.sim.hanging import collect
from tests.sim.parting import look
from tests.sim.restores import RESTORE_ORDERS, Kept, push
from tests.sim.saves import SAVE_ORDERS
from tests.sim.streams import Valve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.deciding.member import LocalMember
    from controlplane.core.records.model import MemberStatus, Partner
    from holdfast.ipc.messages.launcher import MemberExited
    from tests.sim.ranks import Rank, Slot
    from tests.sim.world import World

PROCESS_S, DEVICE_S = 5.0, 3.0
"""An agent's `process_timeout_s` and `device_timeout_s`: shorter than in production, as schedules are."""

HANGS = HangLimits(factor=5.0, floor_s=3.0, first_s=3.0)
BEATS_EVERY = 2
"""Beats of one rank to its agent."""


class Agent:
    """One node. The members of its launcher outlive the agent, not the node."""

    def __init__(self, world: World, name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.slots = slots
        self.incarnation = 1
        self.boots = 1
        self.beats = 0
        self.port = 1000
        self.up = True
        self.muted_until = 0.0  # until then the leader hears nothing from it, but a probe reaches it
        self.refused_at = -1e9  # when it last could not answer a probe
        self.cut_until = 0.0  # until then no packet passes between it and the leader
        self.inbound, self.outbound = Valve(), Valve()
        self.sure_at = 0.0  # when it last knew that its places were not reassigned
        self.apart_at = 0.0  # when it last came back within the leader's reach
        self.linked = 0  # the term of the leader of its stream; 0: no stream
        self.torn = False  # it sent something that a cut network did not take
        self.ranks: dict[str, Rank] = {}  # processes, and the arenas of ended ones
        self.exits: dict[str, MemberExited] = {}  # repeated by the launcher until they are acknowledged
        self.kept: dict[str, MemberStatus] = {}  # statuses stored for the next agent
        self.answers: dict[tuple[Any, ...], ev.Event] = {}  # to orders that are done, for repeated ones
        self.let_go: dict[str, None] = {}  # members that its core has dismissed
        self.reads: list[tuple[str, Slot]] = []  # slots of members that are being read
        self.pushing: list[str] = []  # members of which copies are on their way to other nodes
        self.partners: tuple[Partner, ...] = ()
        self.stored: dict[tuple[str, str], Slot] = {}  # what arrived last of a member at a node
        self.copies: list[Kept] = []  # of other nodes' snapshots
        self.leaving = False
        self.gone = False  # its node is down, and nobody repairs it
        self.readings: dict[str, bool] = {}  # of its devices: whether healthy
        self.waits: list[heard.Event] = []  # what arrived while the agent was stopped
        self._born()
        world.clock.after(world.rng.uniform(0.0, 0.5), self._beat)

    def _born(self) -> None:
        """Start an agent process: it finds what an earlier one left, and its launcher."""
        facts = AgentFacts(
            self.name, self.incarnation, PROCESS_S, DEVICE_S, fencing.FENCE_AFTER_S, HANGS, ("leader",)
        )
        now, self.collecting = self.world.clock.now, False
        self.core, self.outbox = AgentCore(now, facts, self), Outbox()
        self.outbox.shortens = True
        self.vouched: dict[tuple[str, Slot], ev.SnapshotVouched] = {}  # sent again to each new leader
        self.core.recall([recalled(status, None) for status in self.kept.values()])
        launching.attach(self)

    # -------------------------------------------------------------- what the core may look at (NodeView)

    def step(self, member: LocalMember) -> int:
        rank = self.ranks.get(member.name)
        return rank.board if rank is not None else NO_STEP

    def held(self, member: LocalMember) -> Sequence[tuple[int, int]]:
        rank = self.ranks.get(member.name)
        return sorted(rank.slots) if rank is not None else ()

    def wants(self, member: str) -> bool:
        return any(name == member for name, _ in self.reads)

    def wrote(self, member: str) -> bool:
        return True

    def connected(self, member: str) -> bool:
        rank = self.ranks.get(member)
        return rank is not None and rank.connected

    # -------------------------------------------------------------- the core

    def hear(self, event: heard.Event) -> None:
        """Give the core an event. It waits while the agent is stopped, and is lost while there is none."""
        if not self.up:
            return
        if fencing.stopped(self):
            self.waits.append(event)
            return
        waited, self.waits = self.waits, []
        for each in (*waited, event):
            for effect in self.core.step(self.world.clock.now, each):
                HANDS[type(effect)](self, effect)

    def take(self, term: int, order: Any) -> None:
        """Take one order. Orders of an older term are dropped."""
        if not self.up or not self.outbox.follow(term):
            return
        room = ORDERS[type(order)]
        if room is not None:
            room(self, order)
        if type(order) in DECIDED:
            self.hear(heard.Ordered(order))

    # -------------------------------------------------------------- messages to the leader

    def connect(self) -> None:
        """Send the current leader a hello."""
        if not self.up or self.world.clock.now < self.cut_until or self.world.cluster is None:
            return
        if self.inbound.shut or self.outbound.shut or not self.outbox.follow(self.world.term):
            return
        self.linked, self.apart_at, self.torn = self.world.term, self.world.clock.now, False
        hello = ev.NodeJoined(
            self.name,
            self.incarnation,
            self.core.launcher,
            self.name,
            self.slots,
            self.port,
            self.core.members.told_anew(),
            peer=f"{self.name}:peer",
            copies=tuple(kept.told for kept in self.copies),
        )
        self.world.feed(hello)
        still = [*self.core.still(), *self.vouched.values()]
        for event in self.outbox.replay(self.world.clock.now, still):
            self._send(self.outbox.record_sent(self.world.clock.now, event))

    def tell(self, event: Any) -> None:
        """Send the leader an event now, or once there is a stream."""
        if not self.up:
            return
        if self.linked:
            self._send(self.outbox.record_sent(self.world.clock.now, event))
        else:
            self.outbox.keep(event)

    def _send(self, event: Any) -> None:
        """Put a message on the stream, through the faulty network, or give it to this agent's relay."""
        term, relays = self.linked, self.world.relays
        if relays is not None and relays.sends(self, event):
            return
        if self.world.clock.now < self.cut_until:
            self.torn = True
        elif term == self.world.term or term in self.world.frozen:
            deliver = self.world.feed_if
            self.world.network(lambda: self.outbound.through(lambda: deliver(term, event)))

    def _beat(self) -> None:
        self.world.clock.after(1.0, self._beat)
        if not self.up or fencing.stopped(self):
            return
        self._look()
        lost = self.torn and self.world.clock.now >= self.cut_until
        if lost or self.linked != self.world.term or self.world.cluster is None:
            self.connect()
            return
        copies = tuple(kept.told for kept in self.copies)
        statuses = self.core.members.statuses()
        self.tell(ev.NodeBeat(self.name, self.incarnation, 0, self.port, statuses, copies))

    def _look(self) -> None:
        """Do what an agent does once a second: look at its ranks and hear their beats."""
        now, self.beats = self.world.clock.now, self.beats + 1
        fencing.watch(self)
        if self.beats % BEATS_EVERY == 0:
            for rank in list(self.ranks.values()):
                rank.beat()
        sights = {}
        for rank in self.ranks.values():
            if rank.phase is MemberPhase.RUNNING:
                gaps = tuple(("step", gap) for gap in rank.gaps)
                sights[rank.name] = PageReading(rank.name, rank.spec.job, "step", rank.marked_at, gaps)
                rank.gaps.clear()
        self.hear(heard.Looked(sights))
        for device, healthy in self.readings.items():
            self.hear(Reading(device, healthy, "" if healthy else "a test"))
        self.hear(Tick())
        assert self.core.next_deadline() > now, "the agent is woken again and again, and time does not pass"

    # -------------------------------------------------------------- processes

    def exit(self, rank: Rank, code: int | None = None) -> None:
        """End a process: by SIGKILL, unless it has an exit code."""
        launching.end(self, rank, code)

    def later(self, delay: float, rank: Rank, then: Callable[[], None]) -> None:
        """Have a process do something after about this delay, if it still lives then."""
        self.world.clock.after(
            delay * self.world.rng.uniform(0.5, 1.5), lambda: then() if rank.alive else None
        )

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """Have this agent process do something after this delay, if it still lives then."""
        life = self.incarnation
        self.world.clock.after(delay, lambda: do() if self.incarnation == life and self.up else None)

    # -------------------------------------------------------------- effects and orders

    def push(self, effect: do.Push) -> None:
        """Send a rank a message."""
        rank = self.ranks.get(effect.member)
        if rank is not None and rank.connected:
            rank.hear(effect.message.encode())

    def form(self, effect: do.Form) -> None:
        """Send a rank the order to form a generation."""
        rank = self.ranks.get(effect.member)
        if rank is not None and rank.connected:
            rank.hear_form(effect.generation)

    def keep(self, effect: do.Keep) -> None:
        """Store a status where the next agent finds it."""
        if effect.status.member in self.ranks:
            self.kept[effect.status.member] = effect.status

    def make_room(self, effect: do.MakeRoom) -> None:
        """Create an arena, in a thread."""
        self.after(0.05, lambda: self.hear(heard.ArenaAnswer(effect.member)))

    def take_stacks(self, effect: do.TakeStacks) -> None:
        """Answer without stacks: a stopped process writes none."""
        nothing = Standing(effect.member, -1, NO_STEP, "", 0.0, False)
        report = heard.StacksReported(effect.member, effect.age_s, effect.last_message_at, nothing)
        self.after(0.5, lambda: self.hear(report))

    def completed(self, order: fx.Complete) -> None:
        """Drop all copies of a job that is over."""
        self.copies, self.partners, self.vouched = [], (), {}

    def release(self, order: fx.Release) -> None:
        """Send what is released to the replica holders."""
        push(self, order.step)

    def drained(self, order: fx.Drained) -> None:
        """Note that the node is drained: an agent that was asked to end does so."""
        if self.leaving:
            self.leaving = False
            self.down()
            self.world.broken(self)
            self.world.clock.after(self.world.rng.uniform(1.0, 20.0), self.reboot)

    # -------------------------------------------------------------- faults

    def sigterm(self, grace_s: float) -> None:
        """Announce that the machine is to go away."""
        self.leaving = True
        self.tell(ev.NodeLeaving(self.name, self.incarnation, "SIGTERM", grace_s))
        self.world.clock.after(grace_s + 1.0, lambda: self.drained(fx.Drained(self.name, "its time is over")))

    def well(self) -> None:
        """Report devices as healthy and take marks off, again and again until the leader has it."""
        self.readings = dict.fromkeys(self.readings, True)
        ailing = {told.device for told in self.core.members.watch.ailing}
        for device in self.readings:
            if device not in ailing:
                self.tell(ev.DeviceReport(self.name, self.incarnation, device, True, ""))
        node = self.world.cluster.state.nodes.get(self.name) if self.world.cluster else None
        if node is not None and (node.excluded or node.cordoned or node.drain is not None):
            self.world.feed(ev.CordonRequested(self.name, False, ""))
        self.world.clock.after(5.0, self.well)

    def mend(self) -> None:
        """Bring the machine back after all."""
        if self.gone:
            self.gone = False
            self.reboot()

    def die(self) -> None:
        """Kill the agent (kill -9): its ranks train on."""
        self.up, self.waits = False, []
        if self.world.relays is not None:
            self.world.relays.down(self)
        for rank in self.ranks.values():
            rank.connected = False

    def restart(self) -> None:
        """Start another agent process, which adopts what runs; ranks connect to it when they find it."""
        self.incarnation += 1
        self.linked, self.sure_at = 0, self.world.clock.now
        self.answers, self.partners, self.reads, self.pushing, self.stored = {}, (), [], [], {}
        self._born()
        for rank in self.ranks.values():
            self.later(0.2, rank, rank.greet)

    def reboot(self) -> None:
        """Take the whole node down, to come back empty."""
        if self.gone:
            return
        self.up = True
        self.boots += 1
        self.restart()

    def down(self) -> None:
        """Switch the node off: ranks and arenas are gone."""
        self.die()
        for rank in self.ranks.values():
            rank.phase = MemberPhase.EXITED
        self.ranks, self.copies, self.kept, self.exits = {}, [], {}, {}
        self.world.safety.memory_lost = True


def _nothing(agent: Agent, effect: Any) -> None:
    """Ignore lines, counts and outputs: nobody reads them here."""


HANDS: dict[type[Any], Callable[[Agent, Any], None]] = {
    do.Push: Agent.push,
    do.Form: Agent.form,
    do.Spawn: launching.spawn,
    do.Run: launching.run,
    do.Command: launching.command,
    do.Keep: Agent.keep,
    do.SendEvent: lambda agent, effect: agent.tell(effect.event),
    do.Dismiss: launching.dismiss,
    do.MakeRoom: Agent.make_room,
    do.TakeStacks: Agent.take_stacks,
    do.Adopt: _nothing,
    do.Ended: _nothing,
    do.ReportEnd: _nothing,
    do.HideTraceback: _nothing,
    do.Note: _nothing,
    do.Count: _nothing,
}
"""What carries out each effect of the core."""

ORDERS: dict[type[Any], Callable[[Agent, Any], None] | None] = {
    **dict.fromkeys(DECIDED),
    fx.Complete: Agent.completed,
    fx.Release: Agent.release,
    fx.Drained: Agent.drained,
    fx.LookAtPeers: look,
    fx.CollectStacks: collect,
    fx.CheckNode: checking.check,
    **RESTORE_ORDERS,
    **SAVE_ORDERS,
}
"""What carries out each order, before the core if that is concerned."""
