"""Ask silent nodes directly whether they live: connect to their agent's peer service, and hang up."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from controlplane.core.records.events import ProbeAnswered
from controlplane.daemon.loop.keyed_tasks import KeyedTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Probe
    from controlplane.core.records.events import Event

TRIES = 3
TRY_S = 1.0
"""Seconds for each try. The kernel repeats a lost SYN only after one second: each try is one chance."""
AT_ONCE = 64
"""Connections that are tried at the same time."""


class Prober:
    """Carries out Probe effects, each in a task of its own; one probe per node at a time."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks = KeyedTasks()

    def probe(self, effect: Probe) -> None:
        """Begin a probe. Its answer is posted as a ProbeAnswered."""
        self._tasks.begin(effect.node, lambda: self._ask(effect))

    async def close(self) -> None:
        """Cancel all probes."""
        await self._tasks.close()

    async def _ask(self, effect: Probe) -> None:
        async with self._room:
            trouble = await knock(effect.address)
        self._post(ProbeAnswered(effect.node, effect.incarnation, not trouble, trouble))


async def knock(address: str) -> str:
    """Connect to host:port and hang up. Return "" when somebody answered, else why nobody did."""
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
                break  # the host lives, but nothing listens there: another try fails too
            await asyncio.sleep(TRY_S / 4)
        else:
            writer.close()
            return ""
    return trouble
