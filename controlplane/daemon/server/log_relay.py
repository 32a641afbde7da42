"""Pass the logs of ranks from agents on to people: one call of a person, one stream of an agent.

The order to send a log goes over the agent's link; the log comes on a stream of its own (SendLog). At most
BLOCKS_MAX blocks wait between the two: the agent is read from only when the person has taken the blocks
before. When either end is gone, the other one is ended. Nothing of it reaches the core, nor the next
leader."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.logs import LogHead, ReadLog
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from controlplane.core.cluster import Cluster
    from controlplane.core.state.job import Job
    from controlplane.daemon.server.links import Links
    from controlplane.wire import control_pb2 as pb

RELAYS_MAX = 256
"""Streams of logs at a time, of all people together."""
NODES_MAX = 256
"""Nodes that one request asks which logs they have."""
BLOCKS_MAX = 4
HEAD_TIMEOUT_S = 10.0
"""How long an agent may take to begin its answer."""


class LogRefused(Exception):
    """The log cannot be read. The message says why; `busy`: it may be possible later."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class LogsEnded(LogRefused):
    """This coordinator does not lead any more."""

    def __init__(self) -> None:
        super().__init__("this coordinator does not lead any more: ask the next leader again", busy=True)


@dataclass(slots=True)
class LogRelay:
    """One log on its way. `closed`: nobody reads it any more."""

    order: ReadLog
    head: asyncio.Future[LogHead]
    blocks: asyncio.Queue[pb.LogBlock | LogRefused | None] = field(
        default_factory=lambda: asyncio.Queue(BLOCKS_MAX)
    )
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, block: pb.LogBlock | LogRefused | None) -> None:
        """Pass on one block, once there is room; None: the log has ended here, a LogRefused: it broke off."""
        putting = asyncio.ensure_future(self.blocks.put(block))
        closed = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait([putting, closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            closed.cancel()


class LogRelays:
    """The logs that are read through one leader term."""

    def __init__(self, core: Cluster, links: Links, term: int) -> None:
        self._core, self._links, self._term = core, links, term
        self._relays: dict[str, LogRelay] = {}  # by request
        self._numbers = itertools.count(1)

    def expected(self, head: LogHead) -> LogRelay | None:
        """The relay that waits for an agent's stream that begins so; None: nobody waits for it."""
        relay = self._relays.get(head.request)
        if relay is None or (relay.order.node, relay.order.job) != (head.node, head.job) or relay.head.done():
            return None
        relay.head.set_result(head)
        return relay

    def request(self) -> str:
        """A name that no other request has."""
        return f"{self._term}-{next(self._numbers)}"

    async def head(self, order: ReadLog) -> LogHead:
        """What an agent answers at once; its `reason` says why there is no answer. Raises LogsEnded."""
        try:
            relay = self._begin(order)
            try:
                return await self._answered(relay)
            finally:
                self._end(relay)
        except LogsEnded:
            raise
        except LogRefused as refused:
            return LogHead(order.node, order.job, order.request, str(refused))

    async def read(self, order: ReadLog) -> AsyncIterator[pb.LogBlock]:
        """The blocks of a log, as they come. Raises LogRefused, also when they break off."""
        relay = self._begin(order)
        try:
            if reason := (await self._answered(relay)).reason:
                raise LogRefused(reason)
            while (block := await relay.blocks.get()) is not None:
                if isinstance(block, LogRefused):
                    raise block
                yield block
        finally:
            self._end(relay)

    def close(self) -> None:
        """End all: this term is over."""
        over = LogsEnded()
        for relay in self._relays.values():
            if not relay.head.done():
                relay.head.set_exception(over)
            while relay.blocks.full():
                relay.blocks.get_nowait()
            relay.blocks.put_nowait(over)
            relay.closed.set()

    def nodes(self, job: Job, ranks: Iterable[int], *, former: bool) -> list[str]:
        """The nodes that may have logs of these ranks (none: of all), of former processes too if asked for.

        Raises LogRefused."""
        seats = job.generation.seats if job.generation is not None else ()
        wanted = set(ranks)
        if job.generation is not None and not former and (odd := wanted - {seat.rank for seat in seats}):
            raise LogRefused(f"there is no rank {min(odd)}: it has the ranks 0 to {len(seats) - 1}")
        found = {seat.node: None for seat in seats if former or not wanted or seat.rank in wanted}
        if former or not seats:
            found |= dict.fromkeys(job.by_node)
        if len(found) > NODES_MAX:
            raise LogRefused(f"its ranks are on {len(found)} nodes, more than {NODES_MAX}: name some ranks")
        return sorted(found)

    def _begin(self, order: ReadLog) -> LogRelay:
        """Order a log. Raises LogRefused."""
        if len(self._relays) >= RELAYS_MAX:
            raise LogRefused(f"{RELAYS_MAX} logs are being read already, try again", busy=True)
        if reason := self._links.obstacle(order.node, order):
            away = not self._links.connected(order.node)
            raise LogRefused(f"{reason}{self._gone(order.node)}", busy=away)
        relay = LogRelay(order, asyncio.get_running_loop().create_future())
        self._relays[order.request] = relay
        self._links.send(order.node, order, self._term)
        return relay

    def _gone(self, node: str) -> str:
        known = self._core.state.nodes.get(node)
        if known is None:
            return f" (there is no node {node} any more: what its ranks had written is gone with it)"
        if known.shown in ("lost", "left"):
            since = f"; it was heard last {duration(max(0.0, time.monotonic() - known.last_contact_at))} ago"
            return f" (node {node} is {known.shown}{since}: what its ranks had written is there only)"
        return ""

    async def _answered(self, relay: LogRelay) -> LogHead:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                return await asyncio.shield(relay.head)
        except TimeoutError:
            raise LogRefused(
                f"the agent of node {relay.order.node} has not answered within {HEAD_TIMEOUT_S:g} s",
                busy=True,
            ) from None

    def _end(self, relay: LogRelay) -> None:
        self._relays.pop(relay.order.request, None)
        relay.closed.set()
        relay.head.cancel()
