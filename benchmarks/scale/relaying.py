"""Send heartbeats through relays, and be one: the light agents' part of it.

A sender speaks HTTP/2 as light agents do. A relay is a light agent towards the leader, and towards its
senders what a real agent is: a grpc.aio server around `agent.relays.collecting`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from agent.deciding.beat_route import BeatRoute
from agent.peers import wire
from agent.relays.collecting import BeatCollector
from benchmarks.scale.http2 import NoRoom, Stream
from controlplane.wire import peer_pb2 as peer
from controlplane.wire import relayed

if TYPE_CHECKING:
    from controlplane.wire import control_pb2 as pb

RELAY = f"/{wire.SERVICE}/Relay"


class SenderLink(asyncio.Protocol):
    """The way of one light agent's short heartbeats, and its connection to a relay while there is one."""

    def __init__(self, node: str, incarnation: int) -> None:
        self._node, self._incarnation = node, incarnation
        self.route = BeatRoute()
        self.key = b""
        self._stream: Stream | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def name(self, order: pb.RelayBeats) -> None:
        """Use this relay from now on."""
        if self.route.name(order.relay, order.address):
            self.cut()

    def cut(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._transport = None

    def sends(self, beat: pb.StepBeat) -> bool:
        """Give this heartbeat to the relay; False: it must go directly."""
        now = time.monotonic()
        if self.key and self.route.wants(now) and self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
        if not self.key or not self.route.through(now, beat.seq):
            return False
        assert self._stream is not None and self._transport is not None
        sealed = relayed.seal(self._node, self._incarnation, beat, self.key)
        data = peer.RelayRequest(beat=sealed, seq=beat.seq).SerializeToString()
        try:
            self._transport.write(self._stream.message(data))
        except NoRoom as error:
            self.route.failed(now, str(error))
            return False
        return True

    async def _connect(self) -> None:
        host, _, port = self.route.address.rpartition(":")
        self._stream = Stream(RELAY, self.route.address)
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        except OSError as error:
            self.route.failed(time.monotonic(), str(error))
        self._connecting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the call."""
        assert self._stream is not None
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._transport.write(self._stream.opening())
        self.route.opened()

    def data_received(self, data: bytes) -> None:
        """Answer what HTTP/2 asks, and read which heartbeats the leader has."""
        if self._stream is None or self._transport is None:
            return
        messages, reply = self._stream.receive(data)
        if reply:
            self._transport.write(reply)
        for message in messages:
            self.route.taken(peer.RelayAnswer.FromString(message).taken_seq)
        if self._stream.over:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Send directly for a while."""
        self._transport = None
        self.route.failed(time.monotonic(), str(error) if error else "closed")


class Relay:
    """The service of one relay."""

    def __init__(self) -> None:
        self.collector = BeatCollector()
        self._server = grpc.aio.server(options=wire.OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self.collector.serve, peer.RelayRequest.FromString, peer.RelayAnswer.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, {"Relay": handler}),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        """Serve from now on."""
        await self._server.start()
