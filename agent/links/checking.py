"""Measure what takes two machines, for a check of this node: how far its clock is off, and bytes to peers.

Clocks are compared with the coordinator's, or a peer's, by several short questions
(`holdfast.node_check.clock` says what they tell). Bytes go to peers as the probes of running jobs do, one
burst each. A peer on which a rank lives, or which measures itself, says so in its answers to these questions,
and is sent no burst; nor is one that does not know the question."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc

from agent.host.cpu_clock import CpuClock
from agent.links.prober import OCCUPIED, probe
from agent.peers import wire
from agent.peers.blocks import PeerError
from agent.peers.server import AT_WORK
from controlplane.core.records.diagnosis import ProbeLinks
from controlplane.settings import SettingsError
from controlplane.wire import control_pb2, peer_pb2
from controlplane.wire.control_pb2_grpc import ControlStub
from holdfast.node_check import clock
from holdfast.node_check.clock import ClockExchange
from holdfast.node_check.reading import BANDWIDTH, OFFSET, NodeReading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.core.records.diagnosis import LinkProbe
    from controlplane.core.records.model import PeerAddress

RATE = "B/s"
BURST_BYTES, BURST_S = 4 << 20, 0.05
"""Of one burst, at most: no more than the leader lets running jobs probe with."""
PEERS_MAX = 3
"""So many peers are sent a burst; the one in the middle counts, so that one slow peer accuses nobody."""
QUESTIONS = 9
"""The least round trip of nine: a scheduler holds up some of them, and hardly all."""
ANSWER_S = 2.0
REST_S, LOOK_AGAIN_S = 10.0, 0.5
"""Nodes that came together measure themselves at the same time, and end at nearly the same time: a peer that
does so, or receives another one's burst, is waited for so long, and asked so often."""
OLDER = "its agent is of an earlier version, which cannot say whether a rank lives there"
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class LinkChecks:
    """The readings of one node that take two machines. `job`: for whose sake peers are asked, where the
    node's certificate names jobs. `coordinator`: where the leader is; "": nobody leads."""

    def __init__(
        self, job: str, coordinator: Callable[[], str], access: ClientCredentials, to_peers: ClientCredentials
    ) -> None:
        self._job, self._coordinator, self._access, self._to_peers = job, coordinator, access, to_peers

    async def readings(self, peers: Sequence[PeerAddress], until: float) -> list[NodeReading]:
        """All of them. `until` (s, monotonic): nobody is waited for any longer."""
        offset = await coordinator_offset(self._coordinator(), self._access)
        until = min(until, time.monotonic() + REST_S)
        found = [await self._to_one(peer, until) for peer in peers[:PEERS_MAX]]
        return [offset, middle(found)]

    async def _to_one(self, peer: PeerAddress, until: float) -> NodeReading:
        while True:
            _, bandwidth = await peer_readings(peer, self._to_peers, self._job)
            if bandwidth.reason not in (AT_WORK, OCCUPIED) or time.monotonic() + LOOK_AGAIN_S > until:
                return bandwidth
            await asyncio.sleep(LOOK_AGAIN_S)


def middle(found: Sequence[NodeReading]) -> NodeReading:
    """One reading of those to several peers: the middle one, by its number."""
    measured = sorted((each for each in found if each.value is not None), key=lambda each: each.value or 0.0)
    if measured:
        chosen = measured[(len(measured) - 1) // 2]
        return NodeReading(BANDWIDTH, chosen.value, RATE, crowded=chosen.crowded)
    why = "; ".join(dict.fromkeys(f"{each.name.partition(':')[2]}: {each.reason}" for each in found))
    return NodeReading(BANDWIDTH, None, RATE, reason=why[:300] or "no other node is idle")


async def coordinator_offset(address: str, access: ClientCredentials) -> NodeReading:
    """How far this node's clock is ahead of the leader's."""
    if not address:
        return _no_offset(OFFSET, "nobody leads")
    try:
        async with access.channel(address, _OPTIONS) as channel:
            ask, metadata = ControlStub(channel).Clock, access.metadata()  # type: ignore[no-untyped-call]

            async def times() -> tuple[float, float]:
                reply = await ask(control_pb2.ClockRequest(), timeout=ANSWER_S, metadata=metadata)
                return reply.received_s, reply.sent_s

            return clock.offset(OFFSET, [await _exchange(times) for _ in range(QUESTIONS)])
    except (*wire.BROKEN, SettingsError) as error:
        if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return _no_offset(OFFSET, "the coordinator is of an earlier version, which does not tell")
        return _no_offset(OFFSET, await wire.reason(None, error))


async def peer_readings(
    peer: PeerAddress, access: ClientCredentials, job: str = ""
) -> tuple[NodeReading, NodeReading]:
    """How far this node's clock is ahead of a peer's, and how fast bytes go there."""
    name, bandwidth = f"{OFFSET}:{peer.node}", f"{BANDWIDTH}:{peer.node}"
    try:
        exchanges, disturbs = await _met(peer.address, access, job)
    except (*wire.BROKEN, SettingsError) as error:
        why = await wire.reason(None, error)
        return _no_offset(name, why), NodeReading(bandwidth, None, RATE, reason=why)
    offset = clock.offset(name, exchanges)
    if disturbs:
        return offset, NodeReading(bandwidth, None, RATE, reason=disturbs)
    order = ProbeLinks("", job, 0, (), 0.0, BURST_BYTES, BURST_S)
    return offset, _rate(bandwidth, await probe(peer, order, access, CpuClock()))


async def _met(address: str, access: ClientCredentials, job: str) -> tuple[list[ClockExchange], str]:
    """The exchanges with a peer, and why it must not be disturbed; "": it may. Raises what wire.BROKEN names,
    and SettingsError."""
    disturbs = ""
    async with wire.channel(address, access) as channel:
        echo = wire.PeerCalls(channel).echo

        async def times() -> tuple[float, float]:
            nonlocal disturbs
            reply = await echo(peer_pb2.EchoRequest(job=job, check=True), timeout=ANSWER_S)
            if not reply.HasField("check"):
                raise PeerError(OLDER)
            disturbs = reply.check.disturbs
            return reply.check.received_s, reply.check.sent_s

        return [await _exchange(times) for _ in range(QUESTIONS)], disturbs


async def _exchange(times: Callable[[], Awaitable[tuple[float, float]]]) -> ClockExchange:
    """One question. A step of this clock meanwhile does not matter: how long it takes another clock tells."""
    sent_s, began = time.time(), time.perf_counter()
    received_s, answered_s = await times()
    return ClockExchange(sent_s, received_s, answered_s, sent_s + time.perf_counter() - began)


def _rate(name: str, found: LinkProbe) -> NodeReading:
    """The reading of a burst. `crowded`: the share of the newest block's time in which an agent waited."""
    ends: list[Any] = [found.here, found.there]
    if found.reason:
        return NodeReading(name, None, RATE, reason=found.reason)
    if None in ends or not found.block_s > 0.0:
        return NodeReading(name, None, RATE, reason="how long agents waited for a CPU was not counted")
    crowded = max(end.waited_s for end in ends) / found.block_s
    return NodeReading(name, found.bytes_per_s, RATE, crowded=round(crowded, 3))


def _no_offset(name: str, why: str) -> NodeReading:
    return NodeReading(name, None, clock.UNIT, higher=False, reason=why[:300])
