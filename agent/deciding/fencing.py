"""Stop the ranks of a node without contact to a leader for long: another node may run their places by now.

A coordinator that is merely down has reassigned nothing, so training goes on without it for any time. A
coordinator counts as harmless when its host refuses the connection, or when it answers that it knows no
leader. One that does not answer at all cannot be told from a leader behind a cut network: only silence
leads to fencing. `fence_after_s` must exceed `node_timeout_s` (controlplane/timeout_constraints.py): ranks
stop only once the leader may have given their node up."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from agent.deciding.member import interrupt_message
from controlplane.core.records.model import MemberPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState

_IN_GROUP = (MemberPhase.FORMING, MemberPhase.RUNNING)


class Fence:
    """Decides when the ranks must stop, from when each coordinator was last known to be harmless.

    No clock: `now` in s is an argument. `after_s`: how long a coordinator may be silent; 0 never stops
    ranks."""

    def __init__(self, coordinators: Sequence[str], after_s: float, now: float) -> None:
        self._after_s = after_s
        self._sure_at = dict.fromkeys(coordinators, now)

    def note_contact(self, now: float) -> None:
        """There was contact with a leader: no coordinator has given this node up."""
        self._sure_at = dict.fromkeys(self._sure_at, now)

    def absent(self, coordinator: str, now: float) -> None:
        """This coordinator does not lead: it says so, or its host refuses the connection."""
        if coordinator in self._sure_at:
            self._sure_at[coordinator] = now

    def due(self, now: float) -> str:
        """The coordinator that may have reassigned this node's ranks without its knowledge; "" when none
        may."""
        if not self._after_s:
            return ""
        late = [name for name, at in self._sure_at.items() if now - at > self._after_s]
        return late[0] if late else ""


class Fencing:
    """Stops the ranks when the Fence says so, once per loss of contact."""

    def __init__(self, state: NodeState) -> None:
        self._state, self._fenced = state, False
        self._begun: Fence | None = None

    def _fence(self) -> Fence:
        """The Fence, which starts counting at the first look.

        Not earlier: a node that opens slowly (it waits for a launcher, maps memory) has not tried to reach
        any coordinator before."""
        if self._begun is None:
            facts = self._state.facts
            self._begun = Fence(facts.coordinators, facts.fence_after_s, self._state.now)
        return self._begun

    def absent(self, coordinator: str) -> None:
        """This coordinator does not lead."""
        self._fence().absent(coordinator, self._state.now)

    def look(self, up: bool) -> None:
        """Stop the ranks if it is time. `up`: the stream to the leader is up. Called once a second."""
        now, fence = self._state.now, self._fence()
        if up:
            fence.note_contact(now)
        late = fence.due(now)
        if late and not self._fenced:
            after_s = self._state.facts.fence_after_s
            self._stop(f"no message from {late} for {after_s:g} s: other nodes may have taken over its ranks")
        self._fenced = bool(late)

    def _stop(self, reason: str) -> None:
        """Stop every rank that trains.

        Ranks that use the SDK leave their generation and wait with their state. Plain scripts, and members
        that have returned from their elastic function, hear nothing: they are killed."""
        for member in self._state:
            if not member.alive or member.complete is not None:
                continue
            if member.behind:
                self._kill(member, reason)
            elif member.status.elastic:
                self._park(member, reason)
            elif member.status.phase is MemberPhase.STARTING:
                self._kill(member, reason)
        self._state.count("fenced")

    def _kill(self, member: LocalMember, reason: str) -> None:
        self._state.log(f"{member.name} is killed: {reason}", warning=True)
        member.kill_reason = reason
        self._state.kill(member, signal.SIGKILL)

    def _park(self, member: LocalMember, reason: str) -> None:
        if member.status.phase in _IN_GROUP and member.interrupt < member.formed:
            self._state.log(f"{member.name} is parked: {reason}", warning=True)
            member.interrupt, member.interrupt_reason, member.incident = member.formed, reason, ""
            self._state.push(member, interrupt_message(member))
