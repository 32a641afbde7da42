"""Listen for the page's visitors: bound their connections, and count them before the TLS handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from controlplane.access.tls import in_memory
from controlplane.daemon.page.admission import KNOWN_MAX, STRANGERS_MAX, Visit, leaving, network
from controlplane.daemon.page.http import Exchange, HttpAnswer, HttpRefused, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.access.tls import Material, TlsFiles

log = logging.getLogger(__name__)

CONNECTIONS_MAX = KNOWN_MAX + 2 * STRANGERS_MAX
"""Connections at a time, with those that are being disconnected. One more is closed at once."""
HANDSHAKE_TIMEOUT_S = 5.0
ACCEPT_PAUSE_S = 0.2
"""Seconds to wait after an accept that failed (no descriptors left)."""
BACKLOG = 128
SEND_BYTES = 256 << 10
"""Bytes that the kernel may hold for one client that does not read."""


class Listener:
    """One bound port. `handle` answers requests, and sets `Visit.who` when it knows who the visitor is."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: TlsFiles,
        handle: Callable[[Visit, HttpRequest], Awaitable[HttpAnswer]],
        refuse: Callable[[HttpRefused], HttpAnswer],
    ) -> None:
        """Bind. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._tls, self._handle, self._refuse = tls, handle, refuse
        self._contexts = _Contexts(tls) if tls.serves else None
        self.visits: dict[Visit, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to accept."""
        self._task = asyncio.create_task(self._accept(), name="page")

    async def close(self) -> None:
        """Accept nothing more, and disconnect everybody."""
        tasks = [task for task in (self._task, *self.visits.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("the page cannot take a connection: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._admit(connection, network(str(address[0])))

    def _admit(self, connection: socket.socket, address: str) -> None:
        if len(self.visits) >= CONNECTIONS_MAX:
            connection.close()  # too many that are being disconnected are not gone yet
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        visit = Visit(address)
        visit.task = self.visits[visit] = asyncio.create_task(self._attend(visit, connection))
        visit.task.add_done_callback(lambda _: self.visits.pop(visit, None))
        self._make_room()

    def _make_room(self) -> None:
        if (visit := leaving(self.visits)) is not None:
            visit.leave()

    async def _answered(self, visit: Visit, request: HttpRequest) -> HttpAnswer:
        answer = await self._handle(visit, request)
        self._make_room()  # by now `who` is set
        return answer

    async def _attend(self, visit: Visit, connection: socket.socket) -> None:
        """Serve one connection, from its handshake to its end. An error of it ends nothing else."""
        transport = None
        try:
            reader, writer = await self._shake(connection)
            transport = writer.transport
            exchange = Exchange(reader, writer, lambda asked: self._answered(visit, asked), self._refuse)
            await exchange.run()
            if not transport.is_closing():  # a second close of TLS breaks abort in Python 3.11
                writer.close()
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await writer.wait_closed()
        except (OSError, TimeoutError, ssl.SSLError, asyncio.IncompleteReadError) as error:
            log.debug("a connection to the page broke: %r", error)
        finally:
            if transport is not None:
                transport.abort()
            connection.close()

    async def _shake(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=64 << 10)
        context = self._contexts.now() if self._contexts is not None else None
        timeout = {"ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S} if context is not None else {}
        protocol = asyncio.StreamReaderProtocol(reader)  # uvloop's own one for TLS cannot drain
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=context, **timeout
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class _Contexts:
    """The TLS context of the certificate that the files hold now. Visitors need no certificate: people come
    with a browser and log in with a token."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self._of: Material | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def now(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        material = self._tls.material()
        if material != self._of:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
            with in_memory(material.cert) as chain, in_memory(material.key) as private:
                context.load_cert_chain(chain, private, password=lambda: "")
            self._of, self._context = material, context
        return self._context
