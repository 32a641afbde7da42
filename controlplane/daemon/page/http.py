"""Speak HTTP/1.1 on one connection: h11 parses and writes, this module keeps the limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 << 10
"""Bytes of a request's first line and headers."""
BODY_BYTES_MAX = 16 << 10
HEAD_TIMEOUT_S = 10.0
"""Seconds for the head of a new connection's first request, and for the body of any."""
IDLE_TIMEOUT_S = 30.0
"""Seconds until the next request of a connection has arrived, its body apart."""
WRITE_TIMEOUT_S = 10.0
"""A client that reads nothing for this long is disconnected."""
WAITING_BYTES_MAX = 256 << 10
"""Bytes of an answer that wait for a slow client; beyond it the answer waits for the client."""
REQUESTS_MAX = 1000
"""Requests on one connection."""

Send = "Callable[[bytes], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `headers` by name in lower case; of several with one name the last counts."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""

    def cookie(self, name: str) -> str:
        """Return the value of a cookie; "" when there is none."""
        for part in self.headers.get("cookie", "").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                return value
        return ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer. With `stream`, the body is what that function sends until it returns."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]] | None = None


class HttpRefused(Exception):
    """The request is refused, with this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


Handle = "Callable[[Request], Awaitable[Answer]]"


class Exchange:
    """Serves the requests of one connection, one after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handle: Callable[[HttpRequest], Awaitable[HttpAnswer]],
        refuse: Callable[[HttpRefused], HttpAnswer],
    ) -> None:
        self._reader, self._writer, self._handle, self._refuse = reader, writer, handle, refuse
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._bare = False  # a HEAD request: the answer has no body
        peer = writer.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "?"
        writer.transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)

    async def run(self) -> None:
        """Answer requests until the connection ends, or has to."""
        for number in range(REQUESTS_MAX):
            try:
                request = await self._read(HEAD_TIMEOUT_S if number == 0 else IDLE_TIMEOUT_S)
                if request is None:
                    return
                answer = await self._handle(request)
            except h11.RemoteProtocolError as error:
                answer = self._refuse(
                    HttpRefused(error.error_status_hint, f"this is not an HTTP request: {error}")
                )
            except HttpRefused as refused:
                answer = self._refuse(refused)
            if not await self._answer(answer):
                return
            self._wire.start_next_cycle()

    async def _read(self, timeout_s: float) -> HttpRequest | None:
        """Return the next request, whole; None at the end of the connection. Raises HttpRefused,
        RemoteProtocolError."""
        async with asyncio.timeout(timeout_s):
            head = await self._event()
        if isinstance(head, h11.ConnectionClosed):
            return None
        self._bare = isinstance(head, h11.Request) and head.method == b"HEAD"
        if not isinstance(head, h11.Request):
            raise HttpRefused(HTTPStatus.BAD_REQUEST, "a body came before its request")
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            body = await self._body()
        return _request(head, body, self._peer)

    async def _body(self) -> bytes:
        parts, size = [], 0
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed):
                raise HttpRefused(HTTPStatus.BAD_REQUEST, "the request ended before its body")
            assert isinstance(event, h11.Data)
            size += len(event.data)
            if size > BODY_BYTES_MAX:
                raise HttpRefused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {BODY_BYTES_MAX} bytes at most"
                )
            parts.append(bytes(event.data))
        return b"".join(parts)

    async def _event(self) -> Any:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                await self._send(self._wire.send(h11.InformationalResponse(status_code=100, headers=[])))
            self._wire.receive_data(await self._reader.read(16 << 10))
        return event

    async def _answer(self, answer: HttpAnswer) -> bool:
        """Send an answer. Return whether another request may follow."""
        if self._wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        whole = self._wire.their_state is h11.DONE
        headers = [*answer.headers]
        if answer.stream is None:
            headers.append(("Content-Length", str(len(answer.body))))
        if not whole:
            headers.append(("Connection", "close"))
        await self._say(h11.Response(status_code=answer.status, headers=headers))
        if answer.stream is None:
            await self._say(h11.Data(data=b"" if self._bare else answer.body))
        else:
            await self._stream(answer.stream)
        await self._say(h11.EndOfMessage())
        return bool(whole and self._wire.states[h11.SERVER] is h11.DONE)

    async def _stream(self, stream: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]) -> None:
        """Run a stream until it returns, or until the client disconnects or sends anything."""
        streaming = asyncio.ensure_future(stream(lambda data: self._say(h11.Data(data=data))))
        leaving = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait([streaming, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            streaming.cancel() if leaving.done() or not streaming.done() else None
            await asyncio.gather(streaming, leaving, return_exceptions=True)
        if streaming.cancelled():
            raise ConnectionResetError("the client has left")
        streaming.result()

    async def _say(self, event: Any) -> None:
        data = self._wire.send(event)
        if data:
            await self._send(data)

    async def _send(self, data: bytes | None) -> None:
        self._writer.write(data or b"")
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._writer.drain()


def _request(head: h11.Request, body: bytes, peer: str) -> HttpRequest:
    """Return a request as plain data. Raises HttpRefused."""
    names = [name.decode("ascii") for name, _ in head.headers]
    values = [value.decode("latin-1") for _, value in head.headers]
    target = head.target.decode("latin-1")
    if not target.startswith("/") or target.startswith("//"):
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "a request must name a path of this page, like /jobs")
    with contextlib.suppress(ValueError):
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, max_num_fields=20))
        method = head.method.decode("ascii")
        path = unquote(parts.path, errors="strict")
        return HttpRequest(method, path, query, dict(zip(names, values, strict=True)), body, peer)
    raise HttpRefused(HTTPStatus.BAD_REQUEST, "the request's path cannot be read")
