"""`/metrics` over HTTP, and how late the event loop is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import start_http_server

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from controlplane.daemon.metrics import Metrics


class MetricsServer:
    """`/metrics` over HTTP, in a thread: it answers even while the event loop is late."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken, or none of this machine's."""
        started: tuple[WSGIServer, Thread] = start_http_server(port, host, metrics.registry)
        self._server, self._thread = started
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


async def watch_lag(metrics: Metrics, interval_s: float = 0.1) -> None:
    """Measure for ever how late this event loop wakes."""
    loop = asyncio.get_running_loop()
    while True:
        worst = 0.0
        for _ in range(10):
            due = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            worst = max(worst, loop.time() - due)
        metrics.event_loop_lag_seconds.set(worst)
