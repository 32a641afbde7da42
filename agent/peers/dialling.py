"""Find out which peers this node can reach: dial each several times, and report.

The leader asks for this when a group breaks although nobody is dead, and compares both directions of each
link."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from agent.peers.newest_task import NewestTasks
from controlplane.core.records import events
from controlplane.core.records.model import PeerSight

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records import effects
    from controlplane.core.records.model import PeerAddress

TRIES = 3
TRY_S = 1.0
"""A connection that takes longer counts as unanswered: TCP repeats a lost SYN after one second."""
PAUSE_S = 0.1
PEERS_MAX = 256
"""How many peers one order may have dialled."""
log = logging.getLogger("holdfast.agent.peers")


class PeerDialler:
    """Carries out LookAtPeers. A newer order of the same job replaces one that is under way."""

    def __init__(self, node: str, incarnation: int, send_event: Callable[[events.Event], None]) -> None:
        self._node, self._incarnation, self._send_event = node, incarnation, send_event
        self._tasks = NewestTasks()

    def order(self, order: effects.LookAtPeers) -> None:
        """Dial these peers now; answered by PeersLooked."""
        self._tasks.start(order.job, self._look(order))

    async def stop(self) -> None:
        """Cancel every look, and wait for it."""
        await self._tasks.stop()

    async def _look(self, order: effects.LookAtPeers) -> None:
        found = await asyncio.gather(*(sight(peer) for peer in order.peers[:PEERS_MAX]))
        for each in found:
            if each.failed:
                log.warning(
                    "node %s was not reached: %d of %d attempts failed: %s",
                    each.node,
                    each.failed,
                    each.tries,
                    each.reason,
                )
        self._send_event(events.PeersLooked(self._node, self._incarnation, order.round, tuple(found)))


async def sight(peer: PeerAddress, tries: int = TRIES, try_s: float = TRY_S) -> PeerSight:
    """Dial one peer `tries` times, and return how often that failed, with the last reason."""
    failed, reason = 0, ""
    for attempt in range(tries):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        trouble = await dial(peer.address, try_s)
        if trouble:
            failed, reason = failed + 1, trouble
    return PeerSight(peer.node, tries, failed, reason)


async def dial(address: str, timeout_s: float) -> str:
    """Connect and hang up. Returns "" when somebody answered, else the reason."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    except ValueError as error:
        return str(error)
    writer.close()
    return ""
