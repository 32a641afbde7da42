"""Send logs to the leader for people who ask, each on a stream of its own over a connection of its own.

So a log of gigabytes delays no beat and no order. A stream takes what its reader takes: a block is read from
the disk when the block before is on its way, and nothing is kept in memory for a slow reader. When the log is
cut meanwhile, the place of the next block tells."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from agent.logs.reading import LogSlice
from controlplane.access.keepalive import keepalive
from controlplane.background_tasks import BackgroundTasks
from controlplane.core.records.logs import NO_END, LogHead, ReadLog
from controlplane.settings import SettingsError
from controlplane.wire import answers
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import ControlStub
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host.paths import Paths
    from agent.logs.keeping import RankLogs
    from controlplane.access.client_credentials import ClientCredentials

STREAMS_MAX = 64
"""Logs of one node that are read at the same time."""
_LOOK_S = 0.2
_OPTIONS = (
    *keepalive(10, 10),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.enable_http_proxy", 0),
)
_BROKEN = (grpc.RpcError, OSError, WireError, SettingsError, asyncio.InvalidStateError, grpc.aio.BaseError)
_stub: Any = ControlStub  # generated code has no annotations
log = logging.getLogger("holdfast.agent.logs")


class LogSender:
    """Carries out ReadLog. `coordinator` returns the address of the coordinator that leads; "": none."""

    def __init__(
        self,
        node: str,
        paths: Paths,
        logs: RankLogs,
        coordinator: Callable[[], str],
        access: ClientCredentials,
    ) -> None:
        self._node, self._paths, self._logs = node, paths, logs
        self._coordinator, self._access = coordinator, access
        self._tasks = BackgroundTasks()
        self._reading = 0

    def order(self, order: ReadLog) -> None:
        """Answer an order, on a stream of its own."""
        self._tasks.begin(self._answer(order))

    async def close(self) -> None:
        """End all streams."""
        await self._tasks.close()

    async def _answer(self, order: ReadLog) -> None:
        address = self._coordinator()
        if not address:
            return  # the leader that has asked is gone
        try:
            async with self._access.channel(address, _OPTIONS) as channel:
                call = _stub(channel).SendLog(metadata=self._access.metadata())
                try:
                    await self._send(order, call)
                    await call.done_writing()
                    await call
                finally:
                    call.cancel()
        except _BROKEN as error:
            log.info("the log of %s is not sent any more: %s", order.member or order.job, error)

    async def _send(self, order: ReadLog, call: Any) -> None:
        names = self._node, order.job, order.request
        if not order.member:
            files = self._logs.files(order.job)
            await call.write(answers.head_message(LogHead(*names, files=files)))
            return
        try:
            part = await self._part(order)
        except OSError as error:
            reason = f"its log cannot be read: {error.strerror or error}"
            await call.write(answers.head_message(LogHead(*names, reason=reason)))
            return
        self._reading += 1
        try:
            await call.write(answers.head_message(LogHead(*names)))
            await self._blocks(order, part, call)
        finally:
            self._reading -= 1
            part.close()

    async def _part(self, order: ReadLog) -> LogSlice:
        """Open what was asked for. Raises OSError."""
        if not self._logs.knows(order.member):
            raise OSError(f"node {self._node} has no log of {order.member}")
        if self._reading >= STREAMS_MAX:
            raise OSError(f"{STREAMS_MAX} logs of node {self._node} are being read already, try again")
        since = self._logs.since(order.member, order.since_s) if order.since_s > 0 else 0
        return await asyncio.to_thread(LogSlice, self._paths.log(order.member), order, since)

    async def _blocks(self, order: ReadLog, part: LogSlice, call: Any) -> None:
        """Send block after block; with `follow` until the process has ended and all is sent."""
        follows = order.follow and order.end_bytes == NO_END
        while not call.done():
            alive = self._logs.alive(order.member)  # before the read: what it wrote last is read after that
            place, data = await asyncio.to_thread(part.next)
            if data:
                await call.write(pb.LogPart(block=pb.LogBlock(from_bytes=place, data=data)))
            elif not (follows and alive):
                return
            else:
                await asyncio.sleep(_LOOK_S)
