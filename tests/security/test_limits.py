"""Whoever does not belong costs little: connections, handshakes, hellos, streams and messages are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from controlplane.access.guard import LogLimiter
from controlplane.access.tls import LIMITS, STREAMS_MAX, TlsFiles, listen
from controlplane.daemon.server import context, ports
from controlplane.scraping import CONNECTIONS_MAX, ScrapeServer
from controlplane.wire import control_pb2 as pb
from controlplane.wire.codec import MESSAGE_BYTES_MAX
from tests.daemon.rig import until
from tests.security.serving import asked, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.security.authority import Authority

NAMED = dict(LIMITS)


async def _fate(port: int, say: bytes = b"") -> float:
    """Connect, say something, and wait to be hung up on: after how long, s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.monotonic()
    writer.write(say)
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
    writer.close()
    return time.monotonic() - begun


@contextlib.asynccontextmanager
async def smaller(name: str, value: int, tls: TlsFiles) -> AsyncIterator[int]:
    """The port of a server with our limits, one of them smaller: grpc keeps them, we say which."""
    assert name in NAMED
    server = grpc.aio.server(options=[*(NAMED | {name: value}).items()])
    port = listen(server, "127.0.0.1:0", tls)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def test_a_connection_that_shakes_no_hands_is_hung_up_on(authority: Authority) -> None:
    tls = authority.issue("server").tls()
    async with smaller("grpc.server_handshake_timeout_ms", 1000, tls) as port:
        assert max(await asyncio.gather(*(_fate(port) for _ in range(20)))) < 10
        assert await _fate(port, b"GET / HTTP/1.1\r\n\r\n") < 10


async def test_those_who_shake_no_hands_hold_up_nobody(authority: Authority) -> None:
    async with serving(authority.issue("server").tls()) as served:
        silent = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(200)]
        access = authority.of("viewer", "v").access()
        code, _ = await asked(served.address, "Status", pb.StatusRequest(), access)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        for _, writer in silent:
            writer.close()


async def test_connections_over_the_limit_are_hung_up_on() -> None:
    async with smaller("grpc.max_allowed_incoming_connections", 3, TlsFiles()) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in held:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
        for reader, _ in held:
            assert await reader.read(9)  # its settings: the connection stands
        assert await _fate(port) < 5
        for _, writer in held:
            writer.close()


async def test_streams_without_a_hello_are_bounded() -> None:
    async with serving() as served, contextlib.AsyncExitStack() as stack:
        calls: list[Any] = []
        while len(calls) < context.HELLOS_MAX + 8:
            options = (("grpc.use_local_subchannel_pool", 1),)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(served.address, options))
            method = channel.stream_stream("/holdfast.control.v1.Control/Link")
            calls += [method() for _ in range(min(STREAMS_MAX, context.HELLOS_MAX + 8 - len(calls)))]
        answers = [asyncio.ensure_future(call.read()) for call in calls]
        await until(lambda: sum(answer.done() for answer in answers) >= 8)
        told = [pb.CoordinatorMessage.FromString(each.result()) for each in answers if each.done()]
        assert all(message.refused.again_after_s > 0 for message in told), "they may come again, later"
        for call in calls:
            call.cancel()
        await asyncio.gather(*answers, return_exceptions=True)


async def test_calls_on_one_connection_are_bounded() -> None:
    async with serving() as served, grpc.aio.insecure_channel(served.address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watching = [watch(b"") for _ in range(STREAMS_MAX + 1)]
        answers = [asyncio.ensure_future(call.read()) for call in watching]
        await until(lambda: sum(answer.done() for answer in answers) == STREAMS_MAX)
        waiting = next(index for index, answer in enumerate(answers) if not answer.done())
        watching[0 if waiting else 1].cancel()
        async with asyncio.timeout(20):
            assert await answers[waiting] == b"\x08\x01"  # its turn came
        for call in watching:
            call.cancel()


async def test_too_large_a_message_ends_its_own_call_only() -> None:
    big = pb.StopRequest(job="x" * (4 * MESSAGE_BYTES_MAX + 1))
    async with serving() as served:
        assert (await asked(served.address, "Stop", big))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await asked(served.address, "Stop", pb.StopRequest()))[
            0
        ] is grpc.StatusCode.FAILED_PRECONDITION


async def test_too_much_metadata_is_turned_away() -> None:
    async with serving() as served:
        metadata = (("authorization", "Bearer " + "x" * 200_000),)
        code, _ = await asked(served.address, "Status", pb.StatusRequest(), metadata=metadata)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_whoever_pings_too_often_is_sent_away() -> None:
    async with serving() as served:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
        pings = bytes.fromhex("000008060000000000") + b"pingping"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(preface + pings * 50)
        data = b""
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                while part := await reader.read(1 << 16):
                    data += part
        writer.close()
        assert b"too_many_pings" in data


def test_few_lines_are_told_of_many() -> None:
    now = [0.0]
    telling = LogLimiter(5.0, lambda: now[0])
    assert sum(telling() for _ in range(100)) == 5 and telling.untold() == 95
    now[0] = 1.0
    assert sum(telling() for _ in range(100)) == 5
    assert (telling.untold(), telling.untold()) == (95, 0)


@pytest.mark.parametrize("name", ["grpc.max_concurrent_streams", "grpc.server_handshake_timeout_ms"])
def test_both_servers_have_the_limits(name: str) -> None:
    assert name in dict(ports.OPTIONS)


def test_connections_to_metrics_are_bounded() -> None:
    registry = CollectorRegistry()
    server = ScrapeServer(registry, "127.0.0.1", 0)
    silent = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(CONNECTIONS_MAX)]
    try:
        with socket.create_connection(("127.0.0.1", server.port), 30) as late:
            assert late.recv(1) == b"", "one too many is hung up on"
        assert silent[0].recv(1) == b"", "so is who says nothing"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            assert answer.status == 200
    finally:
        for line in silent:
            line.close()
        server.close()
