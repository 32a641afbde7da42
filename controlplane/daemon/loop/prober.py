"""Asks silent nodes directly whether they live: a connection to their agent's peer service, and no more."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from controlplane.core.records.events import ProbeAnswered
from controlplane.daemon.loop.keyed_tasks import Errands

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Probe
    from controlplane.core.records.events import Event

TRIES = 3
TRY_S = 1.0
"""A lost SYN is sent again after one second: three tries of one second are three chances."""
AT_ONCE = 64
"""Connections that are tried at the same time."""


class Prober:
    """Carries out Probe effects, each as a task; one probe per node at a time."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._room = asyncio.Semaphore(AT_ONCE)
        self._errands = Errands()

    def probe(self, effect: Probe) -> None:
        """Ask; the answer comes as an event."""
        self._errands.begin(effect.node, lambda: self._ask(effect))

    async def close(self) -> None:
        """Ask no more."""
        await self._errands.close()

    async def _ask(self, effect: Probe) -> None:
        async with self._room:
            trouble = await knock(effect.address)
        self._post(ProbeAnswered(effect.node, effect.incarnation, not trouble, trouble))


async def knock(address: str) -> str:
    """Connect to host:port and hang up. Returns "" when somebody answered, else why nobody did."""
    host, _, port = address.rpartition(":")
    trouble = ""
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(TRY_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            trouble = f"{address}: no answer within {TRY_S:g} s, {TRIES} times"
        except (OSError, ValueError, OverflowError) as error:
            number = getattr(error, "errno", None)
            trouble = f"{address}: {os.strerror(number) if number else error}"
            if number == errno.ECONNREFUSED:
                break  # the host answers, and nobody listens there: trying again says the same
            await asyncio.sleep(TRY_S / 4)
        else:
            writer.close()
            return ""
    return trouble
