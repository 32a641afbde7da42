"""A coordinator's real server in this process, leading or not, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.access.authentication import Authenticator
from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.access.tls import TlsFiles
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.leadership.leader_term import LeaderTerm
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.server.context import ServerContext
from controlplane.daemon.server.ports import Server
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.diagnosis_settings import DiagnosisSettings
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.security.authority import CLUSTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from controlplane.access.denials import DenyList
    from controlplane.access.tokens import Tokens
    from controlplane.core.records.events import Elected

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class Kept:
    """A store in memory that accepts every write."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def commit(self, _term: int, puts: Mapping[str, bytes | None]) -> int:
        for key, value in puts.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        return len(self.values)


class Served:
    """A front that answers at `address`."""

    def __init__(self, front: ServerContext, server: Server) -> None:
        self.front, self.server = front, server
        self.address = f"127.0.0.1:{server.port}"

    def dropped(self, kind: str) -> float:
        found: float = self.front.metrics.messages_dropped_total.labels(kind)._value.get()
        return found


@contextlib.asynccontextmanager
async def serving(
    tls: TlsFiles | None = None,
    tokens: Tokens | None = None,
    *,
    leads: bool = False,
    subjects: bool = False,
    deny: DenyList | None = None,
    diagnose_every_s: float = 0.0,
    elected: Elected | None = None,
) -> AsyncIterator[Served]:
    """Serve; with `leads` as a leader whose store is in memory, from the state in `elected`."""
    front, tls = ServerContext(CLUSTER, Journal(), Metrics("test")), tls or TlsFiles()
    asks = Authenticator(CLUSTER, tls.verifies, tokens, subjects, deny)
    server = Server(front, "127.0.0.1", 0, tls, asks)
    front.address = f"127.0.0.1:{server.port}"
    await server.start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            if leads:
                await stack.enter_async_context(leading(front, elected, diagnose_every_s=diagnose_every_s))
            yield Served(front, server)
    finally:
        front.leader_term = None
        front.journal.release()
        await server.close(0.1)


@contextlib.asynccontextmanager
async def leading(
    front: ServerContext,
    elected: Elected | None = None,
    *,
    diagnose_every_s: float = 0.0,
    settings: CoreSettings | None = None,
    held: Callable[[], bool] = lambda: True,
) -> AsyncIterator[LeaderTerm]:
    """Begin a leader term, from the state in `elected` or from an empty one. The store is in memory."""
    records = RecordMapping(Keyspace(CLUSTER))
    leader_term = LeaderTerm(
        CLUSTER,
        settings or CoreSettings(),
        elected or records.elected(1, {}),
        store=Kept(),
        records=records,
        journal=front.journal,
        metrics=front.metrics,
        held=held,
        diagnosis=DiagnosisSettings(diagnose_every_s=diagnose_every_s),
    )
    task = asyncio.create_task(leader_term.run())
    front.leader_term = leader_term
    try:
        yield leader_term
    finally:
        front.leader_term = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(
    address: str, method: str, request: Any, access: ClientCredentials | None = None, **more: Any
) -> tuple[grpc.StatusCode, str]:
    """Call a method of Admin once. Returns the status, and the answer or error."""
    access = access or plain()
    async with access.channel(address, OPTIONS) as channel:
        call = getattr(AdminStub(channel), method)  # type: ignore[no-untyped-call]
        metadata = more.pop("metadata", access.metadata())
        try:
            reply = call(request, timeout=10, metadata=metadata)
            if method == "Events":
                return grpc.StatusCode.OK, "".join([line.json async for line in reply])
            if method in ("Profile", "ReadLog"):
                return grpc.StatusCode.OK, "".join([str(row) async for row in reply])
            return grpc.StatusCode.OK, str(await reply)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""


UNHEARD = grpc.StatusCode.INTERNAL, "Internal error from Core"
"""What grpc.aio's client puts in the place of the server's answer when that ends a stream while the client
writes to it: the caller does not learn the answer, and has to call again."""


async def greeted(
    address: str, hello: pb.AgentMessage, access: ClientCredentials | None = None
) -> tuple[Any, str]:
    """Send this hello on a stream until the server's own answer is heard. Returns the kind of the answer, or
    the status, and its text."""
    return await heard(lambda: _greeted(address, hello, access or plain()))


async def heard(call: Callable[[], Awaitable[tuple[Any, str]]]) -> tuple[Any, str]:
    """Call until the server's own answer is heard, and return that."""
    for _ in range(9):
        answer = await call()
        if answer != UNHEARD:
            break
    return answer


async def _greeted(address: str, hello: pb.AgentMessage, access: ClientCredentials) -> tuple[Any, str]:
    async with access.channel(address, OPTIONS) as channel:
        call = channel.stream_stream(
            "/holdfast.control.v1.Control/Link",
            request_serializer=pb.AgentMessage.SerializeToString,
            response_deserializer=pb.CoordinatorMessage.FromString,
        )(metadata=access.metadata())
        try:
            async with asyncio.timeout(10):
                await call.write(hello)
                answer = await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        call.cancel()
        if answer is grpc.aio.EOF:
            return await call.code(), await call.details()
        kind = answer.WhichOneof("body")
        return kind, answer.refused.reason if kind == "refused" else ""
