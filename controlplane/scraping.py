"""Serve `/metrics` over HTTP, for both daemons.

The server runs in threads: it answers even while the event loop is late, which is when metrics matter most.
Connections are bounded in number and in silence, so that clients cannot exhaust the daemon."""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from controlplane.exposition import wsgi_app

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CONNECTIONS_MAX = 32
"""Open connections at a time; one more is closed at once. Prometheus needs one."""

SILENT_S = 5.0
"""A connection that sends nothing, or reads nothing, for this long is closed."""

log = logging.getLogger(__name__)


class _Handler(WSGIRequestHandler):
    """One request of one connection."""

    timeout = SILENT_S

    def log_message(self, format: str, *values: Any) -> None:
        """Log nothing: scrapes come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without looking up our own host name, as WSGIServer would: a name service may be slow."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it when CONNECTIONS_MAX are open."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end, then make room for another.

        There is room before the connection is closed: whoever sees it closed may open the next one."""
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self._room.release()
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a scrape that broke off at debug level only: the client has gone."""
        log.debug("a scrape by %s broke off", client_address, exc_info=True)


class ScrapeServer:
    """The HTTP server of `/metrics`; it answers from its construction until `close`."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken, or is not one of this machine's."""
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = rows[0]
        self._server = _Server(family, (str(address[0]), int(address[1])))
        self._server.set_app(wsgi_app(registry))
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="holdfast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
