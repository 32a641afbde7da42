"""Open the coordinator's gRPC port, with every service behind its guard."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.access.guard import AccessGuard
from controlplane.access.keepalive import keepalive
from controlplane.access.tls import LIMITS, listen
from controlplane.daemon.server.admin import Admin
from controlplane.daemon.server.health import Health
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import add_AdminServicer_to_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.access.authentication import Authenticator
    from controlplane.access.tls import TlsFiles
    from controlplane.daemon.server.context import ServerContext

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 1.0
"""Seconds to wait for a server to stop, beyond its grace; waited twice at most."""


class PortTaken(OSError):
    """The address cannot be listened on."""


class Server:
    """The gRPC server of a coordinator, with its guard. `port` is the one that it has bound."""

    def __init__(
        self,
        front: ServerContext,
        host: str,
        port: int,
        tls: TlsFiles,
        asks: Authenticator,
    ) -> None:
        """Bind. Raises PortTaken."""
        guard = AccessGuard(asks, front.denied)
        self._server = grpc.aio.server(options=OPTIONS, interceptors=(guard,))
        handler = grpc.stream_stream_rpc_method_handler(
            front.link,
            request_deserializer=None,
            response_serializer=pb.CoordinatorMessage.SerializeToString,
        )
        logs = grpc.stream_unary_rpc_method_handler(
            front.send_log,
            request_deserializer=None,
            response_serializer=pb.LogTaken.SerializeToString,
        )
        clock = grpc.unary_unary_rpc_method_handler(
            _clock,
            request_deserializer=pb.ClockRequest.FromString,
            response_serializer=pb.ClockReply.SerializeToString,
        )
        methods = {"Link": handler, "SendLog": logs, "Clock": clock}
        control = grpc.method_handlers_generic_handler("holdfast.control.v1.Control", methods)
        self.health = Health(lambda: front.leader_term is not None)
        self._server.add_generic_rpc_handlers((control, self.health.handlers()))
        add_AdminServicer_to_server(Admin(front), self._server)  # type: ignore[no-untyped-call]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port: int = listen(self._server, address, tls)
        except RuntimeError as error:
            raise PortTaken(_taken(address)) from error
        if self.port == 0:
            raise PortTaken(_taken(address))

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def close(self, grace_s: float = 1.0) -> None:
        """Take no new calls, give running ones `grace_s` to end, then stop."""
        await stop_within(self._server.stop, grace_s)


def _taken(address: str) -> str:
    return (
        f"cannot listen on {address}: it is taken or not an address of this machine; "
        "end the other process, or give another --listen (port 0 takes a free one)"
    )


OPTIONS = [
    ("grpc.so_reuseport", 0),  # two coordinators on one port must not share its connections
    ("grpc.max_receive_message_length", 4 * codec.MESSAGE_BYTES_MAX),  # up to here an error names its size
    *keepalive(10, 10),
    ("grpc.keepalive_permit_without_calls", 1),
    *LIMITS,
]


async def stop_within(stop: Callable[[float | None], Awaitable[None]], grace_s: float) -> bool:
    """Stop a grpc server, and return in any case. Return whether it has stopped.

    grpc waits for ever for a stream that arrived in the moment of the stop. What is open after the grace is
    aborted once more, then left to the end of the process."""
    stopping = [asyncio.ensure_future(stop(grace_s))]
    await asyncio.wait(stopping, timeout=grace_s + STOP_TIMEOUT_S)
    if not stopping[0].done():
        stopping.append(asyncio.ensure_future(stop(None)))
        await asyncio.wait(stopping, timeout=STOP_TIMEOUT_S)
    ended = [each for each in stopping if each.done()]
    for each in ended:
        each.result()
    if not ended:
        log.warning("some streams did not end in time: the server stops with the process")
    return bool(ended)


async def _clock(_request: pb.ClockRequest, _context: Any) -> pb.ClockReply:
    """Say what the time is here, to an agent that compares its clock."""
    received_s = time.time()
    return pb.ClockReply(received_s=received_s, sent_s=time.time())
