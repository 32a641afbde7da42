"""Take heartbeats that agents pass on for others, and tell agents through whom to send.

To the core a relayed heartbeat is one like any other, if its mark is right and its number is the newest of its
node. One whose whole heartbeat took the direct way and is not here yet only shows that its node lives. Everything
else is dropped and counted. So what a relay can do at most is to hold heartbeats back, which their senders
notice. Of a node without a stream here nothing is taken: orders would not reach it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.core.records.events import MemberReport, NodeBeat, NodesHeard, StepBeat
from controlplane.daemon.server.relay_table import RelayTable
from controlplane.wire import codec, relayed
from controlplane.wire.relayed import BeatsTaken, RelayBeats
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.events import Event
    from controlplane.daemon.server.links import AgentLink
    from controlplane.daemon.telemetry.metrics import Metrics
    from controlplane.wire import control_pb2 as pb

LOOK_S = 1.0
"""How often nodes are given relays."""


class BeatRelays:
    """The relays of one leader term. `send` sends an order to a node."""

    def __init__(
        self,
        from_nodes: int,
        *,
        post: Callable[[Event], None],
        send: Callable[[str, codec.Order], None],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post, self._send, self._metrics, self._clock = post, send, metrics, clock
        self._table = RelayTable(from_nodes)
        self._links: dict[str, AgentLink] = {}  # by node: its admitted stream

    def admitted(self, link: AgentLink) -> None:
        """A stream is up."""
        self._links[link.node] = link
        if codec.is_taken(RelayBeats(link.node, "", ""), link.takes):
            self._table.add(link.node, link.peer)

    def gone(self, link: AgentLink) -> None:
        """A stream is over."""
        if self._links.get(link.node) is link:
            del self._links[link.node]
            self._table.remove(link.node)

    def note(self, link: AgentLink, event: codec.AgentEvent) -> None:
        """Note the number of what came directly: older heartbeats that come through a relay are not news."""
        if isinstance(event, NodeBeat):
            link.whole_seq = event.seq
        if isinstance(event, NodeBeat | StepBeat | MemberReport):
            link.newest_seq = max(link.newest_seq, event.seq)

    def take(self, relay: AgentLink, message: pb.BeatsRelayed) -> list[str]:
        """Take a batch, and answer it. Returns why heartbeats of it were dropped. Raises WireError."""
        relayed.check(message)
        dropped, heard = [], []
        for data in message.beats:
            try:
                beat, link = self._opened(data)
            except WireError as error:
                dropped.append(str(error))
                continue
            self._metrics.heartbeats_relayed_total.add()
            link.newest_seq = beat.seq
            if beat.like == link.whole_seq:
                self._post(beat)
            else:
                heard.append((beat.node, beat.incarnation))
        if heard:
            self._post(NodesHeard(tuple(heard)))
        if len(message.beats) > len(dropped):
            self._table.heard(self._clock(), relay.node)
        self._send(relay.node, BeatsTaken(relay.node, message.number))
        return dropped

    def _opened(self, data: bytes) -> tuple[StepBeat, AgentLink]:
        """Return a heartbeat and its node's stream. Raises WireError when it does not count."""
        sealed = relayed.opened(data)
        link = self._links.get(sealed.node)
        if link is None or link.incarnation != sealed.incarnation:
            raise WireError(f"a relayed heartbeat of {sealed.node!r:.80}, which has no such stream here")
        if not relayed.is_genuine(sealed, link.beat_key):
            raise WireError(f"a relayed heartbeat of {link.node} without the mark of its stream")
        beat = relayed.step_beat(sealed)
        if beat.seq <= link.newest_seq:
            raise WireError(f"relayed heartbeat {beat.seq} of {link.node} is older than {link.newest_seq}")
        return beat, link

    async def run(self) -> None:
        """Give nodes relays, until cancelled."""
        while True:
            for node, relay, address in self._table.look(self._clock()):
                self._send(node, RelayBeats(node, relay, address))
            self._metrics.beat_relays.set(len(self._table.relays))
            await asyncio.sleep(LOOK_S)
