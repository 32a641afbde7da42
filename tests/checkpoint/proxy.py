"""A TCP proxy between a client and an HTTP server that misbehaves on demand, as networks and services do.

One request per connection. A fault is a coroutine that is given the connection instead of the server."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

HEAD_BYTES_MAX = 64 << 10


@dataclass(slots=True)
class Exchange:
    """One connection whose request head has been read."""

    head: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream: tuple[str, int]

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    def header(self, name: str) -> str:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""

    async def body(self, nbytes: int | None = None) -> bytes:
        """Read the request's body: the first `nbytes`, or all of it."""
        if self.header("Expect"):
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(self.header("Content-Length") or 0)
        return await self.reader.readexactly(length if nbytes is None else min(nbytes, length))

    async def asked(self) -> bytes:
        """Pass the whole request on to the server, and return its whole answer."""
        head = b"".join(
            line + b"\r\n"
            for line in self.head.split(b"\r\n")[:-2]
            if not line.lower().startswith((b"connection:", b"expect:"))
        )
        reader, writer = await asyncio.open_connection(*self.upstream)
        try:
            writer.write(head + b"Connection: close\r\n\r\n" + await self.body())
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    def reset(self) -> None:
        """Break the connection with a TCP reset, as a dying peer does."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Fault = Callable[[Exchange], Awaitable[None]]


def answer(status: int, code: str) -> Fault:
    """Make a fault: the service answers with an error."""

    async def fault(exchange: Exchange) -> None:
        await exchange.body()
        text = f"<Error><Code>{code}</Code><Message>{code} by the proxy</Message></Error>"
        body = b"" if exchange.method == "HEAD" else text.encode()
        exchange.writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body
        )

    return fault


async def half_open(exchange: Exchange) -> None:
    """Fault: the request is taken, and no answer ever comes."""
    await exchange.body()
    await asyncio.sleep(3600)


async def reset_in_request(exchange: Exchange) -> None:
    """Fault: the connection breaks in the middle of the upload."""
    await exchange.body(int(exchange.header("Content-Length") or 0) // 2)
    exchange.reset()


async def reset_in_answer(exchange: Exchange) -> None:
    """Fault: the connection breaks in the middle of the download."""
    whole = await exchange.asked()
    exchange.writer.write(whole[: len(whole) - 100])
    await exchange.writer.drain()
    exchange.reset()


async def cut_answer(exchange: Exchange) -> None:
    """Fault: the connection is closed in good order before the download is complete."""
    whole = await exchange.asked()
    exchange.writer.write(whole[: len(whole) // 2])


async def lose_answer(exchange: Exchange) -> None:
    """Fault: the server carries the request out, and the client gets no answer."""
    await exchange.asked()
    exchange.reset()


async def slow(exchange: Exchange) -> None:
    """Fault: the answer arrives slowly, a little at a time."""
    whole = await exchange.asked()
    for start in range(0, len(whole), max(1, len(whole) // 8)):
        exchange.writer.write(whole[start : start + max(1, len(whole) // 8)])
        await exchange.writer.drain()
        await asyncio.sleep(0.05)


class Proxy:
    """Serves on a free port until closed. `seen` counts requests by method."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.seen: dict[str, int] = {}
        self.refuses: Callable[[Exchange], Fault | None] = lambda _: None
        self._upstream = upstream
        self._faults: deque[tuple[str, Fault]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX), self._loop
        ).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fail(self, method: str, fault: Fault, times: int = 1) -> None:
        """Give the next `times` requests of this method this fault, behind the faults that are pending
        already."""
        self._faults.extend([(method, fault)] * times)

    @property
    def pending(self) -> int:
        """How many faults no request has had yet."""
        return len(self._faults)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                exchange = Exchange(await reader.readuntil(b"\r\n\r\n"), reader, writer, self._upstream)
                await self._handle(exchange)
                await writer.drain()
        finally:
            self._running.discard(task)
            writer.close()

    async def _handle(self, exchange: Exchange) -> None:
        method = exchange.method
        self.seen[method] = self.seen.get(method, 0) + 1
        fault = self.refuses(exchange)
        if fault is None and self._faults and self._faults[0][0] == method:
            fault = self._faults.popleft()[1]
        if fault is not None:
            await fault(exchange)
            return
        exchange.writer.write(await exchange.asked())
