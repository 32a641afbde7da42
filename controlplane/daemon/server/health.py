"""Answer health probes (grpc.health.v1): the process, and whether it is leader or standby.

Service "" is the process, "holdfast.leader" and "holdfast.standby" are its roles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from controlplane.access.roles import HEALTH
from controlplane.access.tls import LIMITS
from controlplane.wire import health_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_LOOK_S = 0.25
LEADER = "holdfast.leader"
STANDBY = "holdfast.standby"
_Serving = pb.HealthReply.Serving


class Health:
    """The health service. `leads` returns whether this coordinator leads now."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._states: dict[str, Callable[[], bool]] = {
            "": lambda: True,
            LEADER: leads,
            STANDBY: lambda: not leads(),
        }

    def status(self, service: str) -> _Serving:
        """Return the status of a service now."""
        state = self._states.get(service)
        if state is None:
            return pb.HealthReply.SERVICE_UNKNOWN
        return pb.HealthReply.SERVING if state() else pb.HealthReply.NOT_SERVING

    async def check(self, request: pb.HealthRequest, context: Any) -> pb.HealthReply:
        """Answer with the status now. NOT_FOUND for an unknown service, as the standard has it."""
        status = self.status(request.service)
        if status == pb.HealthReply.SERVICE_UNKNOWN:
            known = ", ".join(repr(name) for name in self._states)
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r:.80}; known are: {known}"
            )
        return pb.HealthReply(status=status)

    async def watch(self, request: pb.HealthRequest, _context: Any) -> AsyncIterator[pb.HealthReply]:
        """Answer with the status, at once and whenever it changes."""
        last = None
        while True:
            status = self.status(request.service)
            if status != last:
                last = status
                yield pb.HealthReply(status=status)
            await asyncio.sleep(_LOOK_S)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service's handlers, for a server."""
        ends = (pb.HealthRequest.FromString, pb.HealthReply.SerializeToString)
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self.check, *ends),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, *ends),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)


class HealthServer:
    """A plaintext port of its own, for probes that know no TLS (the kubelet's). It serves nothing else."""

    def __init__(self, health: Health, address: str) -> None:
        """Bind. Raises RuntimeError."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *LIMITS])
        self._server.add_generic_rpc_handlers((health.handlers(),))
        self.port: int = self._server.add_insecure_port(address)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def close(self) -> None:
        """Stop answering and free the port."""
        await self._server.stop(None)
