"""Serve what concerns the logs of ranks: the streams of agents (SendLog), and the calls of people."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.access.guard import calling
from controlplane.core.records.logs import ReadLog
from controlplane.daemon.server.log_relay import LogRefused, LogRelay, LogRelays
from controlplane.wire import answers, bounds
from controlplane.wire import control_pb2 as pb
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controlplane.core.records.logs import LogHead
    from controlplane.core.state.job import Job
    from controlplane.daemon.server.log_tails import LogTails

FIRST_TIMEOUT_S = 10.0
BLOCK_BYTES_MAX = 1 << 20
_NUMBERS = ("from_bytes", "end_bytes", "tail", "since_s")


async def take(context: Any, relays: Callable[[], LogRelays | None]) -> pb.LogTaken:
    """Serve one stream of an agent: pass its log on to the person who asked."""
    try:
        async with asyncio.timeout(FIRST_TIMEOUT_S):
            part = _part(await context.read())
        if part.WhichOneof("body") == "block":
            _block(part)  # an impossible number is named before the order of messages
        head = answers.head_from(part)
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no head within {FIRST_TIMEOUT_S:g} s")
    except WireError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    if why := _not_theirs(head):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
    known = relays()
    relay = known.expected(head) if known is not None else None
    if relay is None:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"nobody waits for the log {head.request!r:.80}")
        raise AssertionError("abort always raises")
    try:
        await _pass_on(context, relay)
    except WireError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return pb.LogTaken()


def _not_theirs(head: LogHead) -> str:
    """Why the caller may not send this; "": it may."""
    caller = calling()
    if not caller.may_be(head.node):
        return f"{caller} may not speak for node {head.node!r:.80}"
    if not caller.may_touch(head.job):
        return f"{caller} may not speak for job {head.job!r:.80}"
    return ""


async def _pass_on(context: Any, relay: LogRelay) -> None:
    """Pass on blocks until the agent ends its stream, or nobody reads them any more. Raises WireError."""
    closed = asyncio.ensure_future(relay.closed.wait())
    ended: LogRefused | None = LogRefused(f"the agent of node {relay.order.node} broke off", busy=True)
    try:
        while not closed.done():
            reading = asyncio.ensure_future(context.read())
            await asyncio.wait([reading, closed], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            data = reading.result()
            if data is grpc.aio.EOF:
                ended = None
                return
            await relay.put(_block(_part(data)))
    except WireError as error:
        ended = LogRefused(f"node {relay.order.node} sent what is no log: {error}")
        raise
    finally:
        closed.cancel()
        await relay.put(ended)


def _part(data: Any) -> pb.LogPart:
    if data is grpc.aio.EOF:
        raise WireError("the stream ended before the head of a log")
    try:
        return pb.LogPart.FromString(data)
    except Exception as error:  # protobuf's own kinds of error differ by version
        raise WireError(f"{len(data)} bytes that are not a LogPart") from error


def _block(part: pb.LogPart) -> pb.LogBlock:
    if part.WhichOneof("body") != "block":
        raise WireError("after the head of a log there are blocks only")
    if reason := bounds.beyond("LogBlock", "from_bytes", part.block.from_bytes):
        raise WireError(reason)
    if len(part.block.data) > BLOCK_BYTES_MAX:
        raise WireError(f"a block of {len(part.block.data)} bytes: {BLOCK_BYTES_MAX} at most")
    return part.block


async def listed(
    relays: LogRelays, tails: LogTails, job: Job, request: pb.ListLogsRequest, context: Any
) -> pb.ListLogsReply:
    """Answer which logs of a job there are, by node; of nodes that are away, of which the end is here."""
    try:
        nodes = relays.nodes(job, request.ranks, former=request.former)
    except LogRefused as refused:
        await context.abort(grpc.StatusCode.ABORTED, f"job {job.name}: {refused}")
    if request.former:
        nodes = sorted({*nodes, *tails.nodes(job.name)})
    try:
        heads = await asyncio.gather(
            *(relays.head(ReadLog(node, job.name, relays.request())) for node in nodes)
        )
    except LogRefused as refused:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(refused))
    return pb.ListLogsReply(nodes=[_row(tails, job.name, head) for head in heads])


def _row(tails: LogTails, job: str, head: LogHead) -> pb.NodeLogs:
    files, reason = head.files, head.reason
    if reason and (files := tails.files(job, head.node)):
        reason = f"{reason}; {tails.said(job, head.node)}"
    elif reason and (missing := tails.missing(job, head.node)):
        reason = f"{reason}; {missing}"
    return pb.NodeLogs(node=head.node, reason=reason, files=map(answers.file_message, files))


async def read(
    relays: LogRelays, tails: LogTails, request: pb.ReadLogRequest, context: Any
) -> AsyncIterator[pb.LogBlock]:
    """Answer with one log, block by block; of a node that is away, with the end that is here."""
    order = ReadLog(
        request.node,
        request.job,
        relays.request(),
        request.member,
        request.from_bytes,
        request.end_bytes,
        request.tail,
        request.since_s,
        request.follow,
    )
    if (kept := tails.blocks(order)) is not None:
        for block in kept:
            yield block
        return
    try:
        async for block in relays.read(order):
            yield block
    except LogRefused as refused:
        code = grpc.StatusCode.UNAVAILABLE if refused.busy else grpc.StatusCode.ABORTED
        missing = tails.missing(request.job, request.node)
        await context.abort(code, f"job {request.job}: {'; '.join(filter(None, (str(refused), missing)))}")


def refusal(request: pb.ListLogsRequest | pb.ReadLogRequest) -> str:
    """Why a request is impossible, whatever the job; "": it is possible."""
    kind = type(request).__name__
    if isinstance(request, pb.ListLogsRequest):
        return next(filter(None, (bounds.beyond(kind, "ranks", rank) for rank in request.ranks)), "")
    if not request.member.startswith(f"{request.job}."):
        return f"{request.member!r:.80} is no process of job {request.job!r:.80}"
    return next(filter(None, (bounds.beyond(kind, name, getattr(request, name)) for name in _NUMBERS)), "")
