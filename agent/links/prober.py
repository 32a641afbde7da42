"""Measure this node's links: some round trips and one short burst to each peer, one peer after the other.

The leader asks for this when a job communicates longer than usual. A burst is a sequence of blocks, each
twice as large as the one before, and each sent when the one before has been answered. It ends with its bytes,
or with its time: no block is begun that would last longer than what is left, judged by the one before. The
newest block says how fast the link is: a token bucket on the way lets the first ones pass.

A block is late because of the link, or because an agent at one of its ends waited for a CPU. So before and
after each block both agents look at what their kernels have counted for them, and the answer says how long
each ran and waited while the newest block was on its way. What follows from it, the leader decides.

Bytes travel over the peer service of both agents, with its credentials. So what is measured is the network
between agents, not a fabric of its own between devices. It takes time of this process too, so a node also
probes itself: what it cannot do without a link says nothing about one."""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.host.cpu_clock import CpuClock, CpuLook
from agent.peers import wire
from agent.peers.newest_task import NewestTasks
from controlplane.core.records.diagnosis import LinkProbe, LinksProbed, ProbeEnd
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
SLOT_S_MAX = BEGINS_S_MAX = 10.0
"""What no order may exceed, whoever sends it: probes must not be in the way."""
PEERS_MAX = 64
"""Peers of one order: twice the distances of 4 billion nodes."""
ANSWER_S = 2.0
"""A peer that does not answer one call within this time is not measured."""
OCCUPIED = "another node's probe was being received there"
log = logging.getLogger("holdfast.agent.links")


class LinkProber:
    """Carries out ProbeLinks. A newer order of the same job replaces one that is under way.

    Only one peer is probed at a time, whatever the number of jobs."""

    def __init__(
        self, node: str, incarnation: int, send: Callable[[LinksProbed], None], access: ClientCredentials
    ) -> None:
        self._node, self._incarnation, self._send, self._access = node, incarnation, send, access
        self._tasks, self._cpu = NewestTasks(), CpuClock()
        self._one = asyncio.Lock()

    def order(self, order: ProbeLinks) -> None:
        """Probe these peers; answered by LinksProbed."""
        self._tasks.start(order.job, self._probe(order))

    async def stop(self) -> None:
        """Cancel every probe, and wait for it."""
        await self._tasks.stop()

    async def _probe(self, order: ProbeLinks) -> None:
        began, slot_s, found = time.monotonic(), min(order.slot_s, SLOT_S_MAX), []
        began += min(order.begins_s, BEGINS_S_MAX)
        for turn, peer in enumerate(order.peers[:PEERS_MAX]):
            await asyncio.sleep(max(0.0, began + turn * slot_s - time.monotonic()))
            async with self._one:
                found.append(await probe(peer, order, self._access, self._cpu))
        for each in found:
            if each.reason:
                log.info("the link to node %s was not measured: %s", each.node, each.reason)
        self._send(LinksProbed(self._node, self._incarnation, order.job, order.round, tuple(found)))


async def probe(peer: PeerAddress, order: ProbeLinks, access: ClientCredentials, cpu: CpuClock) -> LinkProbe:
    """Measure the link to one peer. What goes wrong is the `reason` of the answer."""
    try:
        async with wire.channel(peer.address, access) as channel:
            call = _Echo(wire.PeerCalls(channel).echo, order.job, cpu)
            trips = await call.round_trips()
            return await _burst(call, peer.node, trips, order)
    except _BusyPeer:
        return LinkProbe(peer.node, reason=OCCUPIED)
    except (*wire.BROKEN, SettingsError) as error:
        return LinkProbe(peer.node, reason=await wire.reason(None, error))


async def _burst(call: _Echo, node: str, trips: _Timed, order: ProbeLinks) -> LinkProbe:
    """Send blocks, each twice as large as the one before, while bytes and time last."""
    left, ends = min(order.bytes_max, BURST_BYTES_MAX), time.monotonic() + min(order.burst_s, BURST_S_MAX)
    size, sent, bytes_per_s, rtt_s = BLOCK_BYTES, 0, 0.0, trips.took_s
    block = trips  # until there is one
    while size <= left:
        block = await call.block(bytes(size), block)
        bytes_per_s = size / max(block.took_s - rtt_s, 0.1 * block.took_s)
        sent, left = sent + size, left - size
        size = min(2 * size, BLOCK_BYTES_MAX)
        if time.monotonic() + rtt_s + size / bytes_per_s > ends:
            break
    if not sent:
        return LinkProbe(node, rtt_s, reason="the order allows no bytes")
    here, there = _end(block.here, trips.here), _end(block.there, trips.there)
    return LinkProbe(node, rtt_s, bytes_per_s, sent, "", block.took_s, here, there)


class _BusyPeer(Exception):
    """The peer is receiving another burst."""


class _Span(NamedTuple):
    """What the kernel had counted at one end before and after something; None: not known."""

    before: CpuLook | None
    after: CpuLook | None


class _Timed(NamedTuple):
    """How long something took, and what was counted at both ends meanwhile."""

    took_s: float
    here: _Span
    there: _Span


def _end(block: _Span, trips: _Span) -> ProbeEnd | None:
    """What was counted at one end; None where a count is missing, or contradicts another one."""
    if block.before is None or block.after is None or trips.before is None or trips.after is None:
        return None
    lasted_s = block.after.at_s - block.before.at_s
    waited_s, ran_s = block.after.waited_s - block.before.waited_s, block.after.ran_s - block.before.ran_s
    rtt_waited_s = (trips.after.waited_s - trips.before.waited_s) / ROUND_TRIPS
    if lasted_s <= 0.0 or not all(0.0 <= each < inf for each in (waited_s, ran_s, rtt_waited_s)):
        return None
    pressed = [each.pressed_s for each in block if each is not None and each.pressed_s is not None]
    pressure = (pressed[1] - pressed[0]) / lasted_s if len(pressed) == 2 else None
    known = pressure is not None and 0.0 <= pressure < inf
    return ProbeEnd(waited_s, ran_s, rtt_waited_s, pressure if known else None)


class _Echo:
    """Calls Echo of one peer. `cpu`: counts for this process."""

    def __init__(self, method: Any, job: str, cpu: CpuClock) -> None:
        self._method, self._job, self._cpu = method, job, cpu

    async def round_trips(self) -> _Timed:
        """The median time of some empty calls; the first one, which connects, is left out."""
        await self._call(pb.EchoRequest(job=self._job))
        there, here = await self._look_there(), self._cpu.look()
        took_s = median([await self._timed(b"") for _ in range(ROUND_TRIPS)])
        now = self._cpu.look()
        return _Timed(took_s, _Span(here, now), _Span(there, await self._look_there()))

    async def block(self, payload: bytes, former: _Timed) -> _Timed:
        """How long a block took. Its far end is counted from the end of `former` on."""
        here = self._cpu.look()
        took_s = await self._timed(payload)
        now = self._cpu.look()
        return _Timed(took_s, _Span(here, now), _Span(former.there.after, await self._look_there()))

    async def _timed(self, payload: bytes) -> float:
        request = pb.EchoRequest(job=self._job, payload=payload)
        began = time.perf_counter()
        await self._call(request)
        return time.perf_counter() - began

    async def _look_there(self) -> CpuLook | None:
        """What the peer has counted; None: nothing, or it is of a version that cannot say."""
        reply = await self._call(pb.EchoRequest(job=self._job, look=True))
        if not reply.HasField("look"):
            return None
        look = reply.look
        pressed_s = look.pressed_s if look.HasField("pressed_s") else None
        return CpuLook(look.at_s, look.ran_s, look.waited_s, pressed_s)

    async def _call(self, request: Any) -> Any:
        """The peer's reply. Raises what `wire.BROKEN` names, and _BusyPeer."""
        reply = await self._method(request, timeout=ANSWER_S)
        if reply.busy:
            raise _BusyPeer
        return reply
