"""Stand between two processes that speak gRPC: the test gets each message as bytes, and may change it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
UP, DOWN = "up", "down"


class Between(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves all methods by calling them at `target`. `pass_on(method, UP or DOWN, data)` returns the bytes
    that are sent on."""

    def __init__(self, target: str, pass_on: Callable[[str, str, bytes], bytes]) -> None:
        self._target, self._pass_on = target, pass_on
        self._server: Any = None
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def service(self, details: Any) -> Any:
        """Any method, as a stream of bytes both ways."""
        return grpc.stream_stream_rpc_method_handler(partial(self._serve, details.method))

    async def _serve(self, method: str, _requests: Any, context: Any) -> None:
        async with grpc.aio.insecure_channel(self._target, options=OPTIONS) as channel:
            call = channel.stream_stream(method)()
            up = asyncio.ensure_future(self._up(method, context, call))
            try:
                while (data := await call.read()) is not grpc.aio.EOF:
                    await context.write(self._pass_on(method, DOWN, data))
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
            finally:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)
                call.cancel()
            if await call.code() is not grpc.StatusCode.OK:
                await context.abort(await call.code(), await call.details())

    async def _up(self, method: str, context: Any, call: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            await call.write(self._pass_on(method, UP, data))
        await call.done_writing()
