"""Put the agent's core together: one mutable aggregate, changed by `step` alone.

All handlers work on one `NodeState` and append the effects they want to its list; `step` returns that list.
Effects are never carried out inside a handler, so a handler that raises half way leaves no trace outside the
core: its effects are discarded, and only those of timers that ran before it are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.deciding import events as ev
from agent.deciding import judging
from agent.deciding.exits import Exits
from agent.deciding.fencing import Fencing
from agent.deciding.node_state import NodeState
from agent.deciding.orders import OrderHandlers
from agent.deciding.progress import ProgressWatch, Stalled
from agent.deciding.ranks import Ranks
from agent.deciding.silence import Silences
from controlplane.core.records.model import MemberPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.deciding.effects import Effect
    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import AgentFacts, NodeView
    from agent.deciding.progress import PageReading
    from controlplane.core.records import events


class AgentCore:
    """Everything that an agent decides. Times are in seconds, on the clock of `now`."""

    def __init__(self, now: float, facts: AgentFacts, view: NodeView) -> None:
        self.members = NodeState(facts, view)
        self.members.now = now
        self.progress = ProgressWatch(facts.limits)
        self._orders, self._ranks = OrderHandlers(self.members), Ranks(self.members)
        self._silences = Silences(self.members)
        self._exits = Exits(self.members, self._silences.note_beat)
        self._fencing = Fencing(self.members)

    @property
    def launcher(self) -> str:
        """The id of the launcher that sent the last hello; "" before the first."""
        return self._exits.launcher

    def recall(self, members: Iterable[LocalMember]) -> None:
        """Take over the members that an earlier agent left. The launcher's hello then names those that
        live."""
        for member in members:
            self.members.take(member)
            self.members.survey(member)

    def still(self) -> list[events.Event]:
        """What every new leader must learn: unanswered checkpoint requests, and the devices that are bad."""
        state = self.members
        return [*state.asks(), *map(state.device, state.watch.ailing)]

    def step(self, now: float, event: ev.Event) -> list[Effect]:
        """Take one event at time `now` and return its effects.

        Timers that are due run first; their effects come before those of the event. When the handler raises,
        the event has no effects, the timers' effects are kept for the next call, and the error is passed on:
        LookupError, TypeError or ValueError for an impossible message of the launcher."""
        state = self.members
        state.now = max(now, state.now)
        state.run_due_timers()
        before = state.wanted()
        try:
            HANDLERS[type(event)](self, event)
        except BaseException:
            state.wanted()
            for effect in before:
                state.do(effect)
            raise
        return before + state.wanted()

    def next_deadline(self) -> float:
        """The latest time at which the next Tick must come; infinity when nothing waits."""
        return self.members.next_deadline()

    def _greeted(self, event: ev.Greeted) -> None:
        member = self.members.get(event.member)
        if member is not None and member.alive:
            self._ranks.greet(member, event.hello)
            self._silences.note_beat(member)

    def _rank_reported(self, event: ev.RankReported) -> None:
        member = self.members.get(event.member)
        if member is None:
            return
        self._ranks.receive(member, event.message)
        if member.alive and self.members.view.connected(event.member):
            self._silences.note_beat(member)

    def _room(self, event: ev.ArenaAnswer) -> None:
        member = self.members.get(event.member)
        if member is not None:
            self.members.update(member, no_room=event.reason)

    def _linked(self, event: ev.Linked) -> None:
        self.members.snapshots_by_beats = event.snapshots_by_beats
        self._fencing.look(event.up)

    def _looked(self, event: ev.Looked) -> None:
        """Report ranks that have stopped making progress, and those that make progress again."""
        state = self.members
        self.progress.begin(state.now)
        for member in state:
            sight = event.sights.get(member.name)
            if sight is not None and member.status.phase is MemberPhase.RUNNING:
                self._look(member, sight)
            elif member.status.stalled_s > 0:
                state.update(member, stalled_s=0.0, activity="")
        alive = [member for member in state if member.alive]
        self.progress.forget({m.name for m in alive}, {m.status.job for m in alive})

    def _look(self, member: LocalMember, sight: PageReading) -> None:
        state, change = self.members, self.progress.look(sight, member.status.stalled_s > 0)
        if member.mute:
            return  # the leader knows already; `Silences.note_beat` clears it when the member beats again
        if isinstance(change, Stalled):
            words = f"{member.name}: no progress for {change.age_s:.1f} s ({change.activity})"
            state.log(words, warning=True)
            state.count("stalled")
            step = state.step(member)
            state.update(member, stalled_s=change.age_s, activity=change.activity, step=step)
        elif change is not None:
            state.log(f"{member.name} makes progress again")
            state.update(member, stalled_s=0.0, activity="")


HANDLERS: dict[type[Any], Callable[[AgentCore, Any], None]] = {
    ev.Ordered: lambda core_, event: core_._orders.carry_out(event),
    ev.LaunchFailed: lambda core_, event: core_._orders.launch_failed(event),
    ev.Greeted: AgentCore._greeted,
    ev.RankReported: AgentCore._rank_reported,
    ev.LauncherReported: lambda core_, event: core_._exits.take(event),
    ev.LauncherLost: lambda core_, event: core_._exits.lost(),
    ev.ArenaAnswer: AgentCore._room,
    ev.StacksReported: lambda core_, event: core_._silences.judge_stacks(event),
    ev.Looked: AgentCore._looked,
    ev.Linked: AgentCore._linked,
    ev.NotLeading: lambda core_, event: core_._fencing.absent(event.coordinator),
    judging.Reading: lambda core_, event: core_.members.judge(event),
    judging.Tick: lambda core_, event: core_.members.judge(event),
}
