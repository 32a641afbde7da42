"""Serve this node's snapshots and copies to other agents: take copies in, give them out.

A bad message ends only its own stream. Whatever writes to shared memory runs in a thread that is waited for
even when the call is cancelled, since that memory is given back afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from agent.host.cpu_clock import CpuClock
from agent.peers import wire
from agent.peers.blocks import PeerError, blocks, check, check_member, digest, places
from agent.peers.rights import NotYours, Rights, may_change, may_probe, may_read, owner_of
from agent.peers.threads import in_thread, undo
from controlplane.access.guard import AccessGuard, LogLimiter, calling
from controlplane.access.tls import LIMITS, listen
from controlplane.settings import SettingsError
from controlplane.wire import peer_pb2 as pb
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from concurrent.futures import ThreadPoolExecutor

    from agent.peers.blocks import SnapshotInfo
    from agent.peers.copies import KeptCopies
    from agent.peers.filling import Receiving
    from agent.peers.own_arenas import OwnArenas
    from controlplane.access.authentication import Authenticator
    from controlplane.access.tls import TlsFiles

STREAMS_MAX = 8
"""Streams at a time, in each direction. A caller beyond that is refused and tries again later."""
_WORKING_S = 1.0
"""How often the owner is sent "still working", while a thread is busy with its copy."""
ECHO_S = 0.1
"""For so long after a block of one caller, blocks of others are answered with "busy": two bursts at a time
would measure each other."""
AT_WORK = "it is measuring itself"
"""Why a node that checks itself must not be disturbed. It will have ended soon."""
_ENDED = "replaced by a newer stream, or this copy is no longer needed"
T = TypeVar("T")
log = logging.getLogger("holdfast.agent.peers")


class Busy(PeerError):
    """Too many streams at once."""


_CODES: dict[type[Exception], grpc.StatusCode] = {
    Busy: grpc.StatusCode.UNAVAILABLE,
    NotYours: grpc.StatusCode.PERMISSION_DENIED,
    ArenaError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    PeerError: grpc.StatusCode.FAILED_PRECONDITION,
    TimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    OSError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DecodeError: grpc.StatusCode.INVALID_ARGUMENT,
    ValueError: grpc.StatusCode.INVALID_ARGUMENT,
}
"""The status code that answers each error; the first that fits counts."""


class BurstTurns:
    """Whose burst is being received: blocks of one caller at a time."""

    def __init__(self) -> None:
        self._caller, self._at_s = "", float("-inf")

    def admits(self, caller: str, now_s: float) -> bool:
        """Whether a block of this caller may come now. If so it has the turn for another ECHO_S."""
        if caller != self._caller and now_s - self._at_s < ECHO_S:
            return False
        self._caller, self._at_s = caller, now_s
        return True


@dataclass(frozen=True, slots=True)
class _Put:
    """A copy on its way in."""

    job: str
    owner: str
    task: asyncio.Task[Any]


class PeerServer:
    """Serves `copies`, and the arenas of its own node's members (`own_arenas`).

    `count` receives bytes received and given, and calls refused. Where certificates are required, only
    agents of this cluster are let in, and a copy is changed only by the node that left it. Each message is
    checked against the jobs of its caller, and against those that this node takes (`rights`). `disturbs` says
    why nothing may be measured with this node now; "": it may. `relay` serves streams of heartbeats; None:
    this agent passes none on."""

    def __init__(
        self,
        copies: KeptCopies,
        own_arenas: OwnArenas,
        pool: ThreadPoolExecutor,
        timeout_s: float,
        count: Callable[[str, int], None],
        *,
        asks: Authenticator,
        tls: TlsFiles,
        rights: Rights = Rights(),  # noqa: B008 - it is frozen
        relay: Callable[[Any, Any], Awaitable[None]] | None = None,
        disturbs: Callable[[], str] = str,
    ) -> None:
        self._asks, self._tls, self._rights = asks, tls, rights
        self._log_limiter, self._relay = LogLimiter(), relay
        self._copies, self._own_arenas = copies, own_arenas
        self._pool, self._timeout_s, self._count = pool, timeout_s, count
        self._putting: dict[str, _Put] = {}
        self._giving = 0
        self._turns, self._cpu, self._disturbs = BurstTurns(), CpuClock(), disturbs
        self._server: Any = None
        self.port = 0

    async def start(self, address: str) -> None:
        """Listen at host:port. Raises SettingsError when that is impossible."""
        guard = AccessGuard(self._asks, self._denied)
        self._server = grpc.aio.server(options=(*wire.OPTIONS, *LIMITS), interceptors=(guard,))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            self.port = listen(self._server, address, self._tls)
        except RuntimeError as error:
            raise SettingsError(
                f"cannot listen on --peer-listen {address} ({error}): give a free host:port of this node"
            ) from error
        await self._server.start()

    async def stop(self) -> None:
        """End every stream."""
        if self._server is not None:
            await self._server.stop(None)
        await self.end_puts()

    async def end_puts(self, job: str = "", member: str = "") -> None:
        """Cancel the incoming copies of this job, or member, or all; returns once their slots are given
        back."""
        tasks = [
            put.task
            for name, put in self._putting.items()
            if member in ("", name) and job in ("", put.job) and put.task is not asyncio.current_task()
        ]
        for task in tasks:
            task.cancel(_ENDED)
        if tasks:
            await asyncio.wait(tasks)

    def _handlers(self) -> grpc.GenericRpcHandler:
        def unary(method: Any, request: Any, reply: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(method, request.FromString, reply.SerializeToString)

        methods = {
            "Put": grpc.stream_stream_rpc_method_handler(
                self._put, wire.parser(pb.PutMessage), pb.PutAnswer.SerializeToString
            ),
            "Get": grpc.unary_stream_rpc_method_handler(self._get, pb.GetRequest.FromString, wire.put),
            "Have": unary(self._have, pb.HaveRequest, pb.HaveReply),
            "Drop": unary(self._drop, pb.DropRequest, pb.DropReply),
            "Echo": unary(self._echo, pb.EchoRequest, pb.EchoReply),
        }
        if self._relay is not None:
            methods["Relay"] = grpc.stream_stream_rpc_method_handler(
                self._relay, pb.RelayRequest.FromString, pb.RelayAnswer.SerializeToString
            )
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    # ------------------------------------------------------------ incoming copies

    async def _put(self, _requests: Any, context: Any) -> None:
        async with self._answering(context):
            message = await wire.read(context, self._timeout_s, "the owner")
            if isinstance(message, memoryview) or message.WhichOneof("body") != "snapshot":
                raise PeerError("the first message of a copy must be the snapshot")
            held = wire.held_from(message.snapshot)
            check_member(held.member)
            self._rights.leave(calling(), held)
            check(held)
            self._check_owner(held.member)
            await self.end_puts(member=held.member)  # the owner has come back: its former stream is dead
            if len(self._putting) >= STREAMS_MAX:
                raise Busy(f"{STREAMS_MAX} copies are being received already")
            task = asyncio.current_task()
            assert task is not None
            self._putting[held.member] = _Put(held.job, owner_of(calling()), task)
            try:
                receiving = await self._working(context, self._copies.begin, held)
                if receiving is not None:
                    await self._receive(context, receiving)
                await wire.write(context, pb.PutAnswer(stored=pb.Stored()), self._timeout_s, "the owner")
            finally:
                put = self._putting.get(held.member)
                if put is not None and put.task is task:
                    del self._putting[held.member]

    async def _receive(self, context: Any, receiving: Receiving) -> None:
        owner = f"the owner of {receiving.held.member}"
        filling = receiving.filling
        try:
            lacking = pb.PutAnswer(lacking=pb.Lacking(chunks=receiving.missing))
            await wire.write(context, lacking, self._timeout_s, owner)
            while not filling.whole:
                block = await wire.read(context, self._timeout_s, owner)
                if not isinstance(block, memoryview):
                    raise PeerError(f"{owner} sent something other than a block")
                filling.take(block)
            end = await wire.read(context, self._timeout_s, owner)
            if isinstance(end, memoryview) or end.finish.digest != digest(receiving.held.digests):
                raise PeerError(f"{receiving.held}: its digest is not the announced one")
            await self._working(context, self._copies.commit, receiving, owner_of(calling()))
        finally:
            self._count("peer_received_bytes", filling.received)
            receiving.close()  # does nothing after a commit

    async def _working(self, context: Any, work: Callable[..., T], *args: Any) -> T:
        """Run `work` in a thread, and tell the owner meanwhile that this node is alive.

        The thread is waited for in any case: it writes to memory that is given back afterwards."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        try:
            while not (await asyncio.wait([future], timeout=_WORKING_S))[0]:
                await wire.write(context, pb.PutAnswer(working=pb.Working()), self._timeout_s, "the owner")
        except BaseException:
            await undo(future)
            raise
        return future.result()

    # ------------------------------------------------------------ outgoing copies

    async def _get(self, request: Any, context: Any) -> None:
        async with self._answering(context):
            check_member(request.member)
            wire.check_numbers(request)
            may_read(calling(), request.job, request.member)
            with self._one_more():
                await self._give(request, context)

    async def _give(self, request: Any, context: Any) -> None:
        what = request.member, request.step, request.generation
        offer = await in_thread(self._pool, self._own_arenas.open, *what)
        if offer is None:
            with self._copies.reading(*what) as (slot, held):
                await self._send(context, held, slot.arena.area(slot.index))
            return
        try:
            await self._send(context, offer.held, offer.memory)
        finally:
            await in_thread(self._pool, offer.close)

    async def _send(self, context: Any, held: SnapshotInfo, memory: memoryview) -> None:
        who = "the node that fetches"
        await wire.write(context, pb.GetMessage(snapshot=wire.message_of(held)), self._timeout_s, who)
        for block in blocks(memory, places(held.data_bytes, held.header_bytes)):
            await wire.write(context, wire.block(block), self._timeout_s, who)
            self._count("peer_given_bytes", len(block))

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._giving >= STREAMS_MAX:
            raise Busy(f"{STREAMS_MAX} copies are being sent already")
        self._giving += 1
        try:
            yield
        finally:
            self._giving -= 1

    async def _have(self, request: Any, context: Any) -> Any:
        async with self._answering(context):
            named, caller = request.job, calling()
            if request.member:
                check_member(request.member)
                may_read(caller, named, request.member)
                in_arena = await in_thread(self._pool, self._own_arenas.listing, request.member)
                listing = [*in_arena, *self._copies.listing(request.member)]
            else:
                listing = [
                    h for h in self._copies.listing() if named in ("", h.job) and caller.may_touch(h.job)
                ]
            return pb.HaveReply(copies=[wire.message_of(held, digests=False) for held in listing])

    async def _drop(self, request: Any, context: Any) -> Any:
        async with self._answering(context):
            check_member(request.member)
            may_read(calling(), request.job, request.member)
            self._check_owner(request.member)
            await self.end_puts(member=request.member)
            if await in_thread(self._pool, self._copies.drop, request.member):
                log.info("dropped the copy of %s on its owner's request", request.member)
            return pb.DropReply()

    async def _echo(self, request: Any, context: Any) -> Any:
        """Answer at once; a block, unless another caller's burst is under way."""
        received_s = time.time()
        async with self._answering(context):
            may_probe(calling(), request.job)
            if request.check:
                look = pb.CheckLook(received_s=received_s, disturbs=self._disturbs(), sent_s=time.time())
                return pb.EchoReply(check=look)
            if not request.payload:
                return pb.EchoReply(look=self._look() if request.look else None)
            self._count("peer_probed_bytes", len(request.payload))
            return pb.EchoReply(busy=not self._turns.admits(context.peer(), time.monotonic()))

    def _look(self) -> pb.CpuLook | None:
        """What the kernel has counted for this process; None: nothing is known."""
        look = self._cpu.look()
        return None if look is None else pb.CpuLook(**dataclasses.asdict(look))

    def _check_owner(self, member: str) -> None:
        """Raise NotYours unless the caller left this copy, or is leaving it now, or its owner is unknown."""
        may_change(calling(), member, self._copies.owner(member))
        if member in self._putting:
            may_change(calling(), member, self._putting[member].owner)

    def _denied(self, _counted: str, peer: str, reason: str) -> None:
        self._count("peer_calls_refused", 1)
        if self._log_limiter():
            log.warning(
                "refused a call from %s: %s (%d more since the last such line)",
                peer,
                reason,
                self._log_limiter.untold(),
            )

    @asynccontextmanager
    async def _answering(self, context: Any) -> AsyncIterator[None]:
        """Answer a call that fails with the reason; log and count it."""
        try:
            yield
        except asyncio.CancelledError as error:
            if error.args != (_ENDED,):
                raise
            await context.abort(grpc.StatusCode.ABORTED, _ENDED)  # grpc by itself would let the owner wait
        except tuple(_CODES) as error:
            code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
            reason = str(error) or type(error).__name__
            log.warning("a peer's call failed: %s", reason)
            self._count("peer_calls_refused", 1)
            await context.abort(code, reason)
