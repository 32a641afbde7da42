"""Measure this node's links: some round trips and one short burst to each peer, one peer after the other.

The leader asks for this when a job communicates longer than usual. A burst is a sequence of blocks, each
twice as large as the one before, and each sent when the one before has been answered. It ends with its bytes,
or with its time: no block is begun that would last longer than what is left, judged by the one before. The
newest block says how fast the link is: a token bucket on the way lets the first ones pass.

Bytes travel over the peer service of both agents, with its credentials. So what is measured is the network
between agents, not a fabric of its own between devices. It takes time of this process too, so a node also
probes itself: what it cannot do without a link says nothing about one."""

from __future__ import annotations

import asyncio
import logging
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from agent.peers import wire
from agent.peers.newest_task import NewestTasks
from controlplane.core.records.diagnosis import LinkProbe, LinksProbed
from controlplane.settings import SettingsError
from controlplane.wire import peer_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.core.records.diagnosis import ProbeLinks
    from controlplane.core.records.model import PeerAddress

ROUND_TRIPS = 9
"""A median of nine does not move for four that the scheduler held up."""
BLOCK_BYTES = 64 << 10
"""The first block: it takes 5 ms on a link of 100 Mbit/s."""
BLOCK_BYTES_MAX = 2 << 20
"""Half of what a message may hold."""
BURST_BYTES_MAX = 64 << 20
BURST_S_MAX = 1.0
SLOT_S_MAX = 10.0
"""What no order may exceed, whoever sends it: probes must not be in the way."""
PEERS_MAX = 64
"""Peers of one order: twice the distances of 4 billion nodes."""
ANSWER_S = 2.0
"""A peer that does not answer one call within this time is not measured."""
log = logging.getLogger("holdfast.agent.links")


class LinkProber:
    """Carries out ProbeLinks. A newer order of the same job replaces one that is under way.

    Only one peer is probed at a time, whatever the number of jobs."""

    def __init__(
        self, node: str, incarnation: int, send: Callable[[LinksProbed], None], access: ClientCredentials
    ) -> None:
        self._node, self._incarnation, self._send, self._access = node, incarnation, send, access
        self._tasks = NewestTasks()
        self._one = asyncio.Lock()

    def order(self, order: ProbeLinks) -> None:
        """Probe these peers; answered by LinksProbed."""
        self._tasks.start(order.job, self._probe(order))

    async def stop(self) -> None:
        """Cancel every probe, and wait for it."""
        await self._tasks.stop()

    async def _probe(self, order: ProbeLinks) -> None:
        began, slot_s, found = time.monotonic(), min(order.slot_s, SLOT_S_MAX), []
        for turn, peer in enumerate(order.peers[:PEERS_MAX]):
            await asyncio.sleep(max(0.0, began + turn * slot_s - time.monotonic()))
            async with self._one:
                found.append(await probe(peer, order, self._access))
        for each in found:
            if each.reason:
                log.info("the link to node %s was not measured: %s", each.node, each.reason)
        self._send(LinksProbed(self._node, self._incarnation, order.job, order.round, tuple(found)))


async def probe(peer: PeerAddress, order: ProbeLinks, access: ClientCredentials) -> LinkProbe:
    """Measure the link to one peer. What goes wrong is the `reason` of the answer."""
    call = None
    try:
        async with wire.channel(peer.address, access) as channel:
            call = _Echo(wire.PeerCalls(channel).echo, order.job)
            rtt_s = await call.round_trip()
            return await _burst(call, peer.node, rtt_s, order)
    except _BusyPeer:
        return LinkProbe(peer.node, reason="another node's probe was being received there")
    except (*wire.BROKEN, SettingsError) as error:
        return LinkProbe(peer.node, reason=await wire.reason(None, error))


async def _burst(call: _Echo, node: str, rtt_s: float, order: ProbeLinks) -> LinkProbe:
    """Send blocks, each twice as large as the one before, while bytes and time last."""
    left, ends = min(order.bytes_max, BURST_BYTES_MAX), time.monotonic() + min(order.burst_s, BURST_S_MAX)
    size, sent, bytes_per_s = BLOCK_BYTES, 0, 0.0
    while size <= left:
        took_s = await call.send(bytes(size))
        bytes_per_s = size / max(took_s - rtt_s, 0.1 * took_s)
        sent, left = sent + size, left - size
        size = min(2 * size, BLOCK_BYTES_MAX)
        if time.monotonic() + rtt_s + size / bytes_per_s > ends:
            break
    return LinkProbe(node, rtt_s, bytes_per_s, sent, "" if sent else "the order allows no bytes")


class _BusyPeer(Exception):
    """The peer is receiving another burst."""


class _Echo:
    """Calls Echo of one peer."""

    def __init__(self, method: Any, job: str) -> None:
        self._method, self._job = method, job

    async def round_trip(self) -> float:
        """The median time of some empty calls (s); the first one, which connects, is left out."""
        await self.send(b"")
        return median([await self.send(b"") for _ in range(ROUND_TRIPS)])

    async def send(self, payload: bytes) -> float:
        """How long the peer took to answer (s). Raises what `wire.BROKEN` names, and _BusyPeer."""
        request = pb.EchoRequest(job=self._job, payload=payload)
        began = time.perf_counter()
        reply = await self._method(request, timeout=ANSWER_S)
        took_s = time.perf_counter() - began
        if reply.busy:
            raise _BusyPeer
        return took_s
