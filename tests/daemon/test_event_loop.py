"""The coordinator's event loop hears all that grpc has for it in one turn, however long its turns are, and
whatever other loops of its process have left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.daemon.loop.event_loop import CoordinatorLoop, HearsAll, is_grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD = "/test.Test/Drop"
STREAMS, MESSAGES, TURN_S = 16, 100, 0.004
ENDED_S = 0.5
"""By then grpc knows that the streams of a server have ended."""


class Seen(HearsAll, asyncio.SelectorEventLoop):
    """An event loop that keeps what it is to call for readable files."""

    def __init__(self) -> None:
        self.readers: list[Any] = []
        super().__init__()

    def add_reader(self, fd: Any, callback: Any, *arguments: Any) -> Any:  # type: ignore[override]
        self.readers.append(callback)
        return super().add_reader(fd, callback, *arguments)


async def _turns_for(messages: int) -> int:
    """How many slow turns a server needs to hear so many messages of each stream."""
    heard = 0

    async def drop(_: Any, context: Any) -> None:
        nonlocal heard
        while await context.read() is not grpc.aio.EOF:
            heard += 1

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        "test.Test", {"Drop": grpc.stream_stream_rpc_method_handler(drop)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    senders = asyncio.create_task(asyncio.to_thread(_send, f"127.0.0.1:{port}", messages))
    turns = 0
    while heard < STREAMS * messages:
        time.sleep(TURN_S)  # noqa: ASYNC251 - the loop has other work to do
        await asyncio.sleep(0)
        turns += 1
        assert turns < 10 * STREAMS * messages
    await server.stop(0)
    await senders
    return turns


def _send(address: str, messages: int) -> None:
    """Send as many messages on each of STREAMS connections, from threads of grpc's own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(address, options) for _ in range(STREAMS)]
    calls = [channel.stream_stream(METHOD)(iter([b"x"] * messages)) for channel in channels]
    for call in calls:
        try:
            list(call)
        except grpc.RpcError:  # the server is stopped
            pass
    for channel in channels:
        channel.close()


def test_more_than_one_message_is_heard_in_a_turn() -> None:
    """With grpc alone it is one, once 278 have been more than that."""
    with asyncio.Runner(loop_factory=Seen) as runner:
        turns = runner.run(_turns_for(MESSAGES))
        loop = runner.get_loop()
        assert isinstance(loop, Seen) and any(map(is_grpc, loop.readers)), "grpc's callback is not known"
    assert turns < STREAMS * MESSAGES / 2


def test_it_is_the_coordinators_loop() -> None:
    with asyncio.Runner(loop_factory=CoordinatorLoop) as runner:
        turns = runner.run(_turns_for(MESSAGES))
    assert turns < STREAMS * MESSAGES / 2


@contextmanager
def _served() -> Iterator[tuple[str, threading.Event]]:
    """A server with threads of its own: its address, and what ends its streams. It answers `Say` at any
    time."""
    over = threading.Event()

    def hold(*_: Any) -> Iterator[bytes]:
        yield b"begun"
        over.wait()

    handlers = {
        "Hold": grpc.unary_stream_rpc_method_handler(hold),
        "Say": grpc.unary_unary_rpc_method_handler(lambda *_: b"said"),
    }
    server = grpc.server(ThreadPoolExecutor(2 * STREAMS))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", over
    over.set()
    server.stop(0).wait()


async def _held(address: str) -> list[Any]:
    """Streams that have begun, and their channel: whoever keeps them keeps what grpc says about them."""
    channel = grpc.aio.insecure_channel(address)
    calls = [channel.unary_stream("/test.Test/Hold")(b"") for _ in range(STREAMS)]
    for call in calls:
        assert await call.read() == b"begun"
    return [channel, *calls]


async def _said(address: str) -> bytes:
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(20):
        said: bytes = await channel.unary_unary("/test.Test/Say")(b"")
        return said


def test_what_a_closed_loop_has_left_hides_nothing_from_the_next_one() -> None:
    """grpc has one queue for all loops of a process, and breaks off at each operation of a loop that is
    closed. The rest waits there for the next byte: a loop that has read them all would never hear of it."""
    with _served() as (address, over):
        with asyncio.Runner() as runner:
            left = runner.run(_held(address))
        over.set()
        time.sleep(ENDED_S)
        with asyncio.Runner(loop_factory=CoordinatorLoop) as runner:
            assert runner.run(_said(address)) == b"said"
        assert len(left) == 1 + STREAMS
