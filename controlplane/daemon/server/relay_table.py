"""Choose which agents pass on the heartbeats of which others.

Pure: names and times (s) in, names out. In a small cluster nobody does: one leader hears a thousand nodes
directly at a third of a core. In a larger one every node but the relays sends through one. Nothing depends
on this choice but what the leader spends: senders notice by themselves when their relay is of no use, and
a relay through which nothing comes is given up here (`look`)."""

from __future__ import annotations

from dataclasses import dataclass, field

SENDERS_MAX = 128
"""Nodes that send through one relay. At 5 s between heartbeats it reads 26 per second: 1 % of a core."""
GIVEN_PER_LOOK = 512
"""Nodes that are given a relay at a time, so that ten thousand do not all connect at once."""
QUIET_S = 30.0
"""A relay through which no heartbeat has come for so long, although nodes were given to it, is of no use: it
hangs, its address is wrong, or something on the way takes its connections and carries nothing. Its senders
have sent directly since the second heartbeat."""


@dataclass(slots=True)
class _Relay:
    address: str
    heard_at: float
    senders: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class RelayTable:
    """Who sends through whom. `from_nodes`: the least number of nodes with relays; 0: never."""

    from_nodes: int
    relays: dict[str, _Relay] = field(default_factory=dict)
    relay_of: dict[str, str] = field(default_factory=dict)
    # By name: its address as a relay; "": it can be none.
    _nodes: dict[str, str] = field(default_factory=dict)
    # Nodes that send directly, and could do otherwise.
    _waiting: dict[str, None] = field(default_factory=dict)

    def add(self, node: str, address: str) -> None:
        """A node is there that can send through a relay, and be one if it has an address."""
        self.remove(node)
        self._nodes[node] = address
        self._waiting[node] = None

    def remove(self, node: str) -> None:
        """A node's stream is over. Those that sent through it will be given another relay."""
        self._nodes.pop(node, None)
        self._waiting.pop(node, None)
        if relay := self.relay_of.pop(node, ""):
            self.relays[relay].senders.pop(node, None)
        self._dissolve(node)

    def heard(self, now: float, relay: str) -> None:
        """A heartbeat has come through this relay."""
        if relay in self.relays:
            self.relays[relay].heard_at = now

    def look(self, now: float) -> list[tuple[str, str, str]]:
        """Give up relays of no use, and give nodes a relay: (node, relay, its address), to be told to it."""
        for name, relay in list(self.relays.items()):
            if not relay.senders:
                relay.heard_at = now
            elif now - relay.heard_at > QUIET_S:
                self._dissolve(name)  # one of its senders is the next relay in its place
                self._waiting[name] = None
        if not self.from_nodes or len(self._nodes) < self.from_nodes:
            return []
        return [found for _ in range(min(GIVEN_PER_LOOK, len(self._waiting))) if (found := self._give(now))]

    def _give(self, now: float) -> tuple[str, str, str] | None:
        """Make the node that has waited longest a relay while there are too few, or give it the one with the
        fewest senders. If neither is possible it waits, and a sender that can be a relay becomes one."""
        node = next(iter(self._waiting))
        del self._waiting[node]
        too_few = len(self.relays) * (SENDERS_MAX + 1) < len(self._nodes)
        if too_few and self._nodes[node]:
            self.relays[node] = _Relay(self._nodes[node], now)
            return None
        name = min(self.relays, key=lambda each: len(self.relays[each].senders), default="")
        if name and len(self.relays[name].senders) < SENDERS_MAX:
            self.relays[name].senders[node] = None
            self.relay_of[node] = name
            return node, name, self.relays[name].address
        self._waiting[node] = None
        return self._promote(now) if too_few else None

    def _promote(self, now: float) -> tuple[str, str, str] | None:
        """Make a sender a relay: from now on it sends directly itself."""
        for node, relay in self.relay_of.items():
            if self._nodes[node]:
                del self.relay_of[node]
                del self.relays[relay].senders[node]
                self.relays[node] = _Relay(self._nodes[node], now)
                return node, "", ""
        return None

    def _dissolve(self, name: str) -> None:
        relay = self.relays.pop(name, None)
        for sender in relay.senders if relay is not None else ():
            del self.relay_of[sender]
            self._waiting[sender] = None
