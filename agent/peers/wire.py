"""Encode the peer protocol: snapshots as messages, blocks with one copy only, limits, deadlines.

Blocks are nearly all of the bytes. Their message (proto/controlplane/wire/peer.proto) is put together and
taken apart by hand, which leaves one copy on each side; protobuf encodes everything else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from agent.peers.blocks import PeerError, SnapshotInfo
from controlplane.access.client_credentials import plain
from controlplane.access.keepalive import keepalive
from controlplane.wire import bounds
from controlplane.wire import peer_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.client_credentials import ClientCredentials

SERVICE = "holdfast.peer.v1.Peer"
MESSAGE_BYTES_MAX = 4 << 20
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    *keepalive(10, 5),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
)
BROKEN = (
    grpc.RpcError,
    OSError,
    TimeoutError,
    PeerError,
    asyncio.InvalidStateError,  # a write on a stream that ended at the same moment
    grpc.aio.BaseError,
)
"""What ends one stream, and only that."""
_BLOCK_TAG = 2 << 3 | 2  # field 2 of PutMessage and GetMessage, length-delimited
_VARINT_MAX = 5


def block(content: memoryview) -> bytes:
    """The message that carries a block, as bytes. This is the block's only copy."""
    return b"".join((_prefix(len(content)), content))


def _prefix(nbytes: int) -> bytes:
    head = bytearray((_BLOCK_TAG,))
    while nbytes > 0x7F:
        head.append(nbytes & 0x7F | 0x80)
        nbytes >>= 7
    head.append(nbytes)
    return bytes(head)


def put(message: Any) -> bytes:
    """A PutMessage or GetMessage as bytes; a block that is encoded already passes unchanged."""
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data


def parser(kind: Any) -> Callable[[bytes], Any]:
    """Make a parser: from bytes to a message of this kind, or to a view of the bytes when it is a block."""

    def parse(data: bytes) -> Any:
        start = _block_start(data)
        if start:
            return memoryview(data)[start:]
        message = kind.FromString(data)
        return memoryview(message.block) if message.WhichOneof("body") == "block" else message

    return parse


def _block_start(data: bytes) -> int:
    """Where a block's bytes start in its message; 0 when the message is not exactly one block."""
    if not data or data[0] != _BLOCK_TAG:
        return 0
    nbytes = shift = 0
    for at, byte in enumerate(data[1 : 1 + _VARINT_MAX], 2):
        nbytes |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at if nbytes == len(data) - at else 0
    return 0


def message_of(held: SnapshotInfo, *, digests: bool = True) -> pb.Snapshot:
    """The message that describes a snapshot."""
    return pb.Snapshot(
        job=held.job,
        member=held.member,
        rank=held.rank,
        shard=held.shard,
        step=held.step,
        generation=held.generation,
        data_bytes=held.data_bytes,
        header_bytes=held.header_bytes,
        digests=held.digests if digests else b"",
        vouched=held.vouched,
    )


def check_numbers(message: Any) -> None:
    """Raise PeerError, with the field's name, on a number of a Snapshot or GetRequest outside its bounds."""
    for field in message.DESCRIPTOR.fields:
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
            reason = bounds.beyond(message.DESCRIPTOR.name, field.name, getattr(message, field.name))
            if reason:
                raise PeerError(reason)


def held_from(message: Any) -> SnapshotInfo:
    """The snapshot that a message describes; `blocks.check` tells whether it is possible. Raises
    PeerError."""
    check_numbers(message)
    return SnapshotInfo(
        job=message.job,
        member=message.member,
        rank=message.rank,
        shard=message.shard,
        step=message.step,
        generation=message.generation,
        data_bytes=message.data_bytes,
        header_bytes=message.header_bytes,
        digests=message.digests,
        vouched=message.vouched,
    )


async def read(call: Any, timeout_s: float, who: str) -> Any:
    """The next message. Raises PeerError at the end of the stream, TimeoutError when none comes in time."""
    try:
        async with asyncio.timeout(timeout_s):
            message = await call.read()
    except TimeoutError:
        raise TimeoutError(f"{who} was silent for {timeout_s:g} s") from None
    if message is grpc.aio.EOF:
        raise PeerError(f"{who} ended the stream too early")
    if message is None:  # how grpc passes on bytes that it could not parse
        raise PeerError(f"{who} sent bytes that are not a message of this protocol")
    return message


async def write(call: Any, message: Any, timeout_s: float, who: str) -> None:
    """Send a message. Raises TimeoutError when it is not taken in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await call.write(message)
    except TimeoutError:
        raise TimeoutError(f"{who} accepted nothing for {timeout_s:g} s") from None


class PeerCalls:
    """The methods of the service at one address, as a client calls them."""

    def __init__(self, channel: Any) -> None:
        self.put = channel.stream_stream(f"/{SERVICE}/Put", put, pb.PutAnswer.FromString)
        self.get = channel.unary_stream(
            f"/{SERVICE}/Get", pb.GetRequest.SerializeToString, parser(pb.GetMessage)
        )
        self.have = channel.unary_unary(
            f"/{SERVICE}/Have", pb.HaveRequest.SerializeToString, pb.HaveReply.FromString
        )
        self.drop = channel.unary_unary(
            f"/{SERVICE}/Drop", pb.DropRequest.SerializeToString, pb.DropReply.FromString
        )
        self.relay = channel.stream_stream(
            f"/{SERVICE}/Relay", pb.RelayRequest.SerializeToString, pb.RelayAnswer.FromString
        )
        self.echo = channel.unary_unary(
            f"/{SERVICE}/Echo", pb.EchoRequest.SerializeToString, pb.EchoReply.FromString
        )


def channel(address: str, access: ClientCredentials | None = None) -> Any:
    """A channel to another agent's peer service. Raises SettingsError: see Access.channel."""
    return (access or plain()).channel(address, OPTIONS)


async def reason(call: Any, error: BaseException) -> str:
    """Why a stream ended, in the words of the side that ended it."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if call is not None and call.done() and not call.cancelled():
        return f"{(await call.code()).name}: {await call.details()}"
    return str(error) or type(error).__name__
