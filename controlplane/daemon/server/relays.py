"""Take heartbeats that agents pass on for others, and tell agents through whom to send.

To the core a relayed heartbeat is one like any other, if its mark is right and its number is the newest of
its node. One whose whole heartbeat took the direct way and is not here yet only shows that its node lives.
Everything else is dropped and counted. So what a relay can do at most is to hold heartbeats back, which
their senders notice. Of a node without a stream here nothing is taken: orders would not reach it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from controlplane.core.records.events import MemberReport, NodeBeat, NodesHeard, StepBeat
from controlplane.daemon.server.relay_table import RelayTable
from controlplane.wire import codec, relayed
from controlplane.wire.relayed import BeatsTaken, RelayBeats
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.events import Event
    from controlplane.wire import control_pb2 as pb

LOOK_S = 1.0
"""How often nodes are given relays."""
NEWCOMERS_MAX = 32
"""With more new streams since the last look nobody is given one: a leader that all agents come to has no time
to answer batches, and senders would only go back to the direct way."""


class BeatLink(Protocol):
    """What of an agent's stream matters here (`AgentLink`)."""

    node: str
    incarnation: int
    takes: frozenset[str]  # the new orders that the agent understands
    peer: str  # host:port of its peer service; "": it has none
    beat_key: bytes
    whole_seq: int  # of its last whole heartbeat
    newest_seq: int  # of the newest heartbeat or report


class BeatRelays:
    """The relays of one leader term. `send` sends an order to a node; `count` is called for each relayed
    heartbeat, `show` with the number of relays."""

    def __init__(
        self,
        from_nodes: int,
        *,
        post: Callable[[Event], None],
        send: Callable[[str, codec.Order], None],
        count: Callable[[], None],
        show: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post, self._send, self._count, self._show, self._clock = post, send, count, show, clock
        self._table = RelayTable(from_nodes)
        self._links: dict[str, BeatLink] = {}  # by node: its admitted stream
        self._newcomers = 0  # since the last look

    def admitted(self, link: BeatLink) -> None:
        """A stream is up."""
        self._links[link.node] = link
        self._newcomers += 1
        if codec.is_taken(RelayBeats(link.node, "", ""), link.takes):
            self._table.add(link.node, link.peer)

    def gone(self, link: BeatLink) -> None:
        """A stream is over."""
        if self._links.get(link.node) is link:
            del self._links[link.node]
            self._table.remove(link.node)

    def note(self, link: BeatLink, event: codec.AgentEvent) -> None:
        """Note the number of what came directly: older heartbeats that come through a relay are not news."""
        if isinstance(event, NodeBeat):
            link.whole_seq = event.seq
        if isinstance(event, NodeBeat | StepBeat | MemberReport):
            link.newest_seq = max(link.newest_seq, event.seq)

    def take(self, relay: BeatLink, message: pb.BeatsRelayed) -> list[str]:
        """Take a batch, and answer it. Returns why heartbeats of it were dropped. Raises WireError."""
        relayed.check(message)
        dropped, heard = [], []
        for data in message.beats:
            try:
                beat, link = self._opened(data)
            except WireError as error:
                dropped.append(str(error))
                continue
            self._count()
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

    def _opened(self, data: bytes) -> tuple[StepBeat, BeatLink]:
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

    def look(self) -> None:
        """Give nodes relays, unless many have just come."""
        newcomers, self._newcomers = self._newcomers, 0
        if newcomers > NEWCOMERS_MAX:
            return
        for node, relay, address in self._table.look(self._clock()):
            self._send(node, RelayBeats(node, relay, address))
        self._show(len(self._table.relays))

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
