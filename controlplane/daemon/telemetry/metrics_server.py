"""Serve `/metrics` of a coordinator, and measure how late its event loop is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.scraping import ScrapeServer

if TYPE_CHECKING:
    from controlplane.daemon.telemetry.metrics import Metrics

_LOOK_S = 0.1


class MetricsServer(ScrapeServer):
    """The HTTP server of a coordinator's `/metrics`."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken, or is not one of this machine's."""
        super().__init__(metrics.registry, host, port)


async def watch_lag(metrics: Metrics) -> None:
    """Measure for ever how late this event loop wakes, and set the worst of each second."""
    loop = asyncio.get_running_loop()
    while True:
        worst = 0.0
        for _ in range(10):
            due = loop.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            worst = max(worst, loop.time() - due)
        metrics.event_loop_lag_seconds.set(worst)
