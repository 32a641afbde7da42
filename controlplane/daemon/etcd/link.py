"""Call etcd over several endpoints: one channel each, with rotation, retries and login of our own.

A failed attempt is judged by a table (error_class.py): whether to try again, and whether the request may have
been carried out although no answer came. `call` keeps the latter in `Reply.doubtful`; a transaction needs it
to know its outcome. So grpc's own retries are off."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
import grpc.aio

from controlplane.access.keepalive import keepalive
from controlplane.daemon.etcd import rpc_pb2 as pb
from controlplane.daemon.etcd.error_class import SILENT, ErrorClass, judge
from controlplane.daemon.etcd.errors import EtcdError, EtcdUnavailable, EtcdUnknownOutcome
from controlplane.daemon.etcd.target import boottime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from controlplane.access.tls import Material
    from controlplane.daemon.etcd.target import EtcdTarget

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound="Message")

# Pings only while a call is open, and not more often than etcd allows (5 s; else GOAWAY too_many_pings).
# A local subchannel pool: two clients in one process do not share back-off. No proxy: etcd is in the cluster.
OPTIONS = (
    *keepalive(10, 5),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_400),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
)

ANEW = "if it was created again or restored, restart the coordinators"
"""What to do when etcd is not the one that this process knew: that may be meant, or the address is wrong."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """One of etcd's methods: its path, and the class of its answer. `streams`: it is called over a stream.
    `ordered`: no answer is older than one that came before it was called, from whichever member."""

    path: str
    answer: type[Answer]
    streams: bool = False
    ordered: bool = False


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse, ordered=True)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse, ordered=True)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse, streams=True)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse, streams=True)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


@dataclass(frozen=True, slots=True)
class Reply(Generic[Answer]):
    """An answer. `doubtful`: an earlier attempt went unanswered and may have been carried out.

    `sent_at`: when the answered attempt was sent, s on the link's clock."""

    message: Answer
    doubtful: bool
    sent_at: float


class Failed(Exception):
    """One attempt failed; `trouble` says why, and whether to try again.

    It never leaves this package's retry loops."""

    def __init__(self, trouble: ErrorClass) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


class EtcdLink:
    """The connections to etcd's endpoints. They belong to the event loop of the first call; close them in the
    end.

    `jitter`: numbers in [0, 1) that spread retries; `clock`: s."""

    def __init__(
        self,
        target: EtcdTarget,
        *,
        try_timeout_s: float,
        timeout_s: float,
        jitter: Callable[[], float],
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.target = target
        self.try_timeout_s = try_timeout_s
        self.timeout_s = timeout_s
        self.clock = clock
        self._jitter = jitter
        self._tls = target.tls()
        self._channels: dict[str, tuple[grpc.aio.Channel, Material]] = {}
        self._retired: list[grpc.aio.Channel] = []
        self._closed = False
        self._at = int(jitter() * len(target.endpoints))
        self._token = ""
        self._login = asyncio.Lock()
        self._cluster_id = 0
        self._raft_term = self._revision = 0

    @property
    def endpoint(self) -> str:
        """The endpoint of the next attempt."""
        return self.target.endpoints[self._at % len(self.target.endpoints)]

    def rotate(self, failed: str) -> None:
        """Go on with the next endpoint, unless another call already did."""
        if self.endpoint == failed:
            self._at += 1

    async def pause(self, attempt: int) -> None:
        """Wait before retry number `attempt` (from 1): longer with every round over the endpoints."""
        rounds = max(0, attempt // len(self.target.endpoints))
        await asyncio.sleep(min(0.5, 0.05 * 2**rounds) * (0.5 + self._jitter()))

    async def close(self) -> None:
        """Close all channels; open calls end."""
        self._closed = True
        channels, self._channels = [channel for channel, _ in self._channels.values()], {}
        for channel in (*channels, *self._retired):
            await channel.close()

    async def call(
        self, method: Method[Answer], request: Message, *, timeout_s: float | None = None
    ) -> Reply[Answer]:
        """Call until an endpoint answers, within `timeout_s`. Only for requests that may be sent twice."""
        limit = self.clock() + (self.timeout_s if timeout_s is None else timeout_s)
        troubles: dict[str, ErrorClass] = {}
        doubtful, attempt = False, 0
        while True:
            endpoint, sent_at = self.endpoint, self.clock()
            try:
                message = await self.attempt(endpoint, method, request, limit - sent_at)
                return Reply(message, doubtful, sent_at)
            except Failed as failed:
                trouble = troubles[endpoint] = failed.trouble
            doubtful = doubtful or trouble.sent
            attempt += 1
            if not trouble.again:
                raise trouble.error(f"etcd at {endpoint}: {trouble.text}")
            self.rotate(endpoint)
            if self.clock() >= limit or hopeless(self.target.endpoints, troubles):
                raise given_up(troubles, doubtful)
            await self.pause(attempt)

    async def attempt(
        self, endpoint: str, method: Method[Answer], request: Message, remaining_s: float
    ) -> Answer:
        """Return the answer to one attempt at one endpoint. Raises Failed."""
        timeout_s = max(0.05, min(self.try_timeout_s, remaining_s))
        send = self._streamed if method.streams else self._unary
        revision = self._revision
        try:
            answer: Answer = await send(endpoint, method, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self.failed(error) from error
        except TimeoutError as error:
            raise Failed(SILENT) from error
        header = getattr(answer, "header", None)
        self.accept(header)
        if method.ordered and header is not None:
            self._follow(header.revision, revision)
        return answer

    def failed(self, error: grpc.aio.AioRpcError) -> Failed:
        """Return the judgement on a call that broke; forget the login if it has expired."""
        trouble = judge(error.code(), error.details() or "")
        if trouble.fresh_token:
            self._token = ""
        return Failed(trouble)

    def accept(self, header: Any) -> None:
        """Raise Failed on an answer of a stale member (its raft term is behind), or of another cluster."""
        if header is None or not header.raft_term:
            return
        if header.cluster_id and self._cluster_id not in (0, header.cluster_id):
            text = f"belongs to another etcd cluster than before; {ANEW}"
            raise Failed(ErrorClass(EtcdUnavailable, text, sent=True))
        self._cluster_id = header.cluster_id or self._cluster_id
        if header.raft_term < self._raft_term:
            raise _from_the_past(f"raft term {header.raft_term} after {self._raft_term}")
        self._raft_term = header.raft_term

    def _follow(self, revision: int, before: int) -> None:
        """Raise Failed on an answer to an ordered call that was made at a later revision than it has."""
        if revision < before:
            raise _from_the_past(f"revision {revision} after {before}")
        self._revision = max(self._revision, revision)

    async def open(self, endpoint: str, method: Method[Any], request: Message, timeout_s: float) -> Any:
        """Return a stream to one endpoint, logged in, its first request written. Raises
        AioRpcError or Failed."""
        metadata = await self._metadata(endpoint, timeout_s)
        call = self._stub(endpoint, method)(metadata=metadata)
        try:
            await call.write(request)
        except asyncio.InvalidStateError as error:  # the stream ended before the request was written
            raise Failed(judge(await call.code(), await call.details() or "")) from error
        except BaseException:
            call.cancel()
            raise
        return call

    async def _unary(
        self, endpoint: str, method: Method[Answer], request: Message, timeout_s: float
    ) -> Answer:
        metadata = None if method is AUTHENTICATE else await self._metadata(endpoint, timeout_s)
        answer: Answer = await self._stub(endpoint, method)(request, timeout=timeout_s, metadata=metadata)
        return answer

    async def _streamed(
        self, endpoint: str, method: Method[Answer], request: Message, timeout_s: float
    ) -> Answer:
        """Send one request over a stream of its own, and return the answer."""
        async with asyncio.timeout(timeout_s):
            call = await self.open(endpoint, method, request, timeout_s)
            try:
                answer: Answer = await read(call)
                return answer
            finally:
                call.cancel()

    def _stub(self, endpoint: str, method: Method[Any]) -> Any:
        if self._closed:
            raise EtcdError("this etcd client is closed")
        channel = self._channel(endpoint)
        kind = channel.stream_stream if method.streams else channel.unary_unary
        return kind(method.path, _serialize, method.answer.FromString)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to this endpoint.

        Renewed certificates are used when it has to connect again: calls on a living
        connection are left alone."""
        material = self._tls.material()
        channel, made_with = self._channels.get(endpoint, (None, material))
        if channel is not None:
            if material is made_with or channel.get_state() is grpc.ChannelConnectivity.READY:
                return channel
            log.info("etcd's certificates were renewed: connecting to %s with them", endpoint)
            self._retired.append(channel)
        channel = self._tls.channel(endpoint, OPTIONS)
        self._channels[endpoint] = channel, material
        return channel

    async def _metadata(self, endpoint: str, timeout_s: float) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call: the login, and `hasleader`, which makes a member that is cut off
        from its quorum fail instead of hang."""
        metadata = (("hasleader", "true"),)
        if not self.target.user:
            return metadata
        async with self._login:
            if not self._token:
                self._token = await self._authenticate(endpoint, timeout_s)
        return (*metadata, ("token", self._token)) if self._token != _NO_LOGIN else metadata

    async def _authenticate(self, endpoint: str, timeout_s: float) -> str:
        request = pb.AuthenticateRequest(name=self.target.user, password=self.target.password)
        try:
            answer = await self._unary(endpoint, AUTHENTICATE, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            if NO_LOGIN_WORDS in (error.details() or ""):
                log.warning("etcd at %s asks for no login: --etcd-user is not used", endpoint)
                return _NO_LOGIN
            raise
        return answer.token


def _from_the_past(what: str) -> Failed:
    text = f"answers from the past ({what}): a stale member, or etcd lost its data; {ANEW}"
    return Failed(ErrorClass(EtcdUnavailable, text, sent=True))


NO_LOGIN_WORDS = "authentication is not enabled"
"""How etcd says that it asks for no login."""

_NO_LOGIN = "-"
"""Stands for the token when etcd asks for no login."""


async def read(call: Any) -> Any:
    """Return the next answer of a stream. Raises AioRpcError, or Failed when the stream has ended."""
    answer = await call.read()
    if answer is grpc.aio.EOF:
        raise Failed(judge(await call.code(), await call.details() or "the stream ended"))
    return answer


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def hopeless(endpoints: Sequence[str], troubles: dict[str, ErrorClass]) -> bool:
    """Return whether all endpoints have answered, and none of them is an etcd that lets us in."""
    return len(troubles) == len(set(endpoints)) and all(
        not issubclass(trouble.error, EtcdUnavailable) and not trouble.fresh_token
        for trouble in troubles.values()
    )


def given_up(troubles: dict[str, ErrorClass], doubtful: bool) -> EtcdError:
    """Return what to raise when no endpoint helped: their own error when all failed alike."""
    text = "; ".join(f"{endpoint} {trouble.text}" for endpoint, trouble in troubles.items())
    kinds = {trouble.error for trouble in troubles.values()}
    if len(kinds) == 1 and not doubtful:
        return kinds.pop()(f"etcd: {text}")
    if doubtful:
        return EtcdUnknownOutcome(
            f"etcd did not answer a request, which may have been carried out or not: {text}"
        )
    return EtcdUnavailable(f"no etcd endpoint works: {text}")
