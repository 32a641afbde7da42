"""Whoever only listens finds out in time that nobody speaks any more, however long nothing was said."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import grpc

from controlplane.access.keepalive import keepalive
from tests.leashed import leashed

IDLE_S, ANSWER_S = 1, 1
QUIET_S = 5.0
"""Several pings long."""
SERVER = """
import asyncio, grpc

async def say(request, context):
    yield b"begun"
    await asyncio.Event().wait()

async def main():
    server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 100)])
    handlers = {"Say": grpc.unary_stream_rpc_method_handler(say)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""


def test_who_listened_for_long_finds_as_soon_that_the_other_side_is_stopped() -> None:
    """grpc asks once a minute, after two pings without a word of its own, unless it is told otherwise."""
    command = leashed([sys.executable, "-c", SERVER])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            took_s = asyncio.run(_noticed_after_s(int(server.stdout.readline()), server.pid))
        finally:
            server.kill()
    assert took_s < 10 * (IDLE_S + ANSWER_S)


async def _noticed_after_s(port: int, server: int) -> float:
    """How long a call is open to a server that is stopped while it says nothing."""
    options = [*keepalive(IDLE_S, ANSWER_S), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        call = channel.unary_stream("/test.Test/Say")(b"")
        assert await call.read() == b"begun"
        reading = asyncio.create_task(call.read())
        await asyncio.sleep(QUIET_S)
        assert not reading.done(), "pings are not too many for it"
        os.kill(server, signal.SIGSTOP)
        stopped = time.monotonic()
        await asyncio.wait([reading], timeout=90)
        assert isinstance(reading.exception(), grpc.aio.AioRpcError)
    return time.monotonic() - stopped
