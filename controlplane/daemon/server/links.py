"""Hold the streams of agents: at most one admitted per node, each with one bounded queue of orders."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc

from controlplane.wire import codec
from controlplane.wire.relayed import new_key

if TYPE_CHECKING:
    from controlplane.daemon.telemetry.metrics import Metrics
    from controlplane.wire import control_pb2 as pb

log = logging.getLogger(__name__)

ORDERS_WAITING_MAX = 1024
"""An agent that leaves this many orders unread is cut off. It reconnects, and gets the newest ones."""


class AgentLink:
    """One stream of one agent. Messages to the agent wait in `orders`; None ends the stream after them.

    `takes`: the new orders that the agent understands. `admitted` gets its result when the core has judged
    the hello. `cut` is set to end the stream at once, with the status `code` and `details`."""

    def __init__(self, node: str, incarnation: int, takes: frozenset[str] = frozenset()) -> None:
        self.node, self.incarnation, self.takes = node, incarnation, takes
        self.peer = ""  # host:port of its agent's peer service; "": it has none
        self.beat_key = new_key()  # of this stream: marks its heartbeats on their way through a relay
        self.whole_seq = self.newest_seq = -1  # of its last whole heartbeat, and of what came last
        self.orders: asyncio.Queue[pb.CoordinatorMessage | None] = asyncio.Queue(ORDERS_WAITING_MAX + 2)
        self.admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.cut = asyncio.Event()
        self.code, self.details = grpc.StatusCode.OK, ""

    def send(self, message: pb.CoordinatorMessage) -> bool:
        """Queue a message. Return False when too many wait: the agent does not read them, and is cut off."""
        if self.orders.qsize() >= ORDERS_WAITING_MAX:
            self.end(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{ORDERS_WAITING_MAX} orders wait: {self.node} does not read them; reconnect",
            )
            return False
        self.orders.put_nowait(message)
        return True

    def finish(self, message: pb.CoordinatorMessage | None = None) -> None:
        """End the stream in order: after what is queued, and after this last message."""
        if message is not None and not self.orders.full():
            self.orders.put_nowait(message)
        if not self.orders.full():
            self.orders.put_nowait(None)
        self._decide(False)

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream at once, with this status."""
        self.code, self.details = code, details
        self.cut.set()
        self._decide(False)

    def admit(self, welcome: pb.CoordinatorMessage) -> None:
        """Answer the hello with this welcome. From now on the agent's messages are read."""
        welcome.welcome.beat_key = self.beat_key
        self.send(welcome)
        self._decide(True)

    def _decide(self, admitted: bool) -> None:
        if not self.admitted.done():
            self.admitted.set_result(admitted)


class Links:
    """All streams of one leader term. A stream is pending until the core admits or refuses its hello."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._links: dict[str, AgentLink] = {}
        self._pending: dict[tuple[str, int], AgentLink] = {}

    def __len__(self) -> int:
        return len(self._links)

    def expect(self, link: AgentLink) -> None:
        """Hold a stream whose hello the core is about to judge; end an older one of the same agent."""
        older = self._pending.pop((link.node, link.incarnation), None)
        if older is not None:
            older.end(grpc.StatusCode.ABORTED, "the same agent opened a newer stream")
        self._pending[link.node, link.incarnation] = link

    def admit(self, node: str, incarnation: int, welcome: pb.CoordinatorMessage) -> None:
        """Admit the stream of this hello. It replaces an older one of the node."""
        link = self._pending.pop((node, incarnation), None)
        if link is None:
            return  # its stream has broken: NodeBroken is on its way to the core
        older = self._links.pop(node, None)
        self._links[node] = link
        if older is not None:
            older.end(grpc.StatusCode.ABORTED, f"a newer stream of node {node} replaced this one")
        link.admit(welcome)
        self._count()

    def refuse(self, node: str, incarnation: int, message: pb.CoordinatorMessage) -> None:
        """End the stream of this incarnation: the core refuses its hello, or no longer wants it."""
        self._metrics.messages_dropped_total.labels("refused").inc()
        link = self._pending.pop((node, incarnation), None)
        current = self._links.get(node)
        if link is None and current is not None and current.incarnation == incarnation:
            link = self._links.pop(node)
        if link is not None:
            link.finish(message)
        self._count()

    def send(self, node: str, effect: codec.Order, term: int, incident: str = "") -> None:
        """Send an order to the node's agent. Without a stream it is dropped: the core will repeat it."""
        link = self._links.get(node)
        if link is None:
            self._metrics.messages_dropped_total.labels("no_stream").inc()
            return
        try:
            message = codec.to_agent(effect, term, incident)
        except codec.WireError as error:
            log.error("an order to node %s cannot be encoded: %s", node, error)
            self._metrics.messages_dropped_total.labels("malformed").inc()
            return
        if not link.send(message):
            self._metrics.messages_dropped_total.labels("slow_agent").inc()

    def connected(self, node: str) -> bool:
        """Return whether the node's agent has a stream now."""
        return node in self._links

    def understands(self, node: str, effect: codec.Order) -> bool:
        """Return whether the node's agent is not known to be too old for this order."""
        link = self._links.get(node)
        return link is None or codec.is_taken(effect, link.takes)

    def obstacle(self, node: str, effect: codec.Order) -> str:
        """Return why the node's agent cannot be given this order; "" when it can."""
        link = self._links.get(node)
        if link is None:
            return f"the agent of node {node} is not connected now"
        if not codec.is_taken(effect, link.takes):
            return (
                f"the agent of node {node} is of an older version, which does not know this order: upgrade it"
            )
        return ""

    def forget(self, link: AgentLink) -> bool:
        """Remove a stream that is over. Return whether the core has to learn of it: it was the node's current
        stream, or pending."""
        key = (link.node, link.incarnation)
        waited = self._pending.get(key) is link
        if waited:
            del self._pending[key]
        mine = self._links.get(link.node) is link
        if mine:
            del self._links[link.node]
        self._count()
        return mine or waited

    def finish_all(self, message: pb.CoordinatorMessage) -> None:
        """End all streams in order, each with this last message."""
        for link in [*self._links.values(), *self._pending.values()]:
            link.finish(message)
        self._links.clear()
        self._pending.clear()
        self._count()

    def _count(self) -> None:
        self._metrics.agent_connections.set(len(self._links))
