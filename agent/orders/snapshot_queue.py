"""Queue the orders about snapshots: persist, finalize, mirror, publish, load, collect, scrub.

Each kind has a thread of its own, so that a restore never waits behind an upload, nor a commit behind a
scrub; what is not urgent runs at a low priority. Each thread works on one order at a time, so the memory that
orders take does not grow with their number. The leader repeats orders until it has their result: a repeated
one joins the one that runs, or gets its result again."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agent.orders import restoring, saving, upkeep
from agent.orders.context import FAILURES, log
from controlplane.core.records import effects
from holdfast.checkpoint import priority

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.orders.context import Context, OrderKind
    from controlplane.core.records import events

NICE = {"upload": 10, "commit": 5, "load": 0, "mirror": 15, "collect": 19, "scrub": 19}
"""The threads, and the nice value of each; its helper threads inherit it."""
_RESULTS_MAX = 256
"""How many results are kept for orders that are repeated."""
SNAPSHOT_ORDERS: tuple[type[Any], ...] = (
    effects.Persist,
    effects.Seal,
    effects.Mirror,
    effects.Publish,
    effects.Load,
    effects.Collect,
    effects.Scrub,
)

Key = tuple[str, ...]


class SnapshotQueue:
    """The node's orders about snapshots.

    `send_event` sends each result to the leader, `loaded` receives each member whose arena changed."""

    def __init__(
        self, context: Context, send_event: Callable[[events.Event], None], loaded: Callable[[str], None]
    ) -> None:
        self.context, self._send_event, self._loaded = context, send_event, loaded
        self._kinds: dict[type[Any], OrderKind] = {
            **saving.SaveOrders(self.context).kinds(),
            **restoring.RestoreOrders(self.context).kinds(),
            **upkeep.Upkeep(self.context).kinds(),
        }
        self._pools = {
            name: ThreadPoolExecutor(1, name, initializer=priority.give_way, initargs=(nice,))
            for name, nice in NICE.items()
        }
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._results: dict[Key, events.Event] = {}

    def queued(self) -> dict[str, int]:
        """The number of unfinished orders, by the thread they wait for."""
        counts = dict.fromkeys(NICE, 0)
        pools = {kind.__name__.lower(): entry.pool for kind, entry in self._kinds.items()}
        for key in self._running:
            counts[pools[key[0]]] += 1
        return counts

    def wants(self, member: str) -> bool:
        """Whether an order that is not done yet reads this member's arena."""
        return any(member in key for key in self._running)

    def order(self, order: Any) -> None:
        """Begin an order.

        One that runs is not begun again; one that succeeded has its result sent again, if that is remembered;
        one that failed is tried again."""
        kind = self._kinds[type(order)]
        key = (type(order).__name__.lower(), *kind.key(order))
        if key in self._results:
            self._send_event(self._results[key])
        elif key not in self._running:
            self._running[key] = asyncio.get_running_loop().create_task(self._carry_out(order, kind, key))

    async def close(self) -> None:
        """Drop what has not begun, stop the uploads, and wait for what runs."""
        self.context.stop.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.context.storages.close)
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        for pool in self._pools.values():
            await asyncio.to_thread(pool.shutdown, True)

    async def _carry_out(self, order: Any, kind: OrderKind, key: Key) -> None:
        try:
            result = await self._done(order, kind, key)
        except Exception as error:  # reported to the leader; an unforeseen one is logged with its traceback
            unforeseen = not isinstance(error, FAILURES)
            log.warning("%s failed: %s", " ".join(key), error, exc_info=unforeseen)
            self.context.tally.add("orders_failed", key[1], label=key[0])
            self._send_event(kind.failed(order, error))
            return
        if kind.remembered:
            self._results[key] = result
            while len(self._results) > _RESULTS_MAX:
                del self._results[next(iter(self._results))]
        if isinstance(order, effects.Load):
            self._loaded(order.member)
        self._send_event(result)

    async def _done(self, order: Any, kind: OrderKind, key: Key) -> events.Event:
        """Carry out an order and return its result.

        It must not count as running any more when the result is sent: the leader may answer by ordering it
        again."""
        try:
            return await self._worked(order, kind)
        finally:
            del self._running[key]

    async def _worked(self, order: Any, kind: OrderKind) -> events.Event:
        loop, pool = asyncio.get_running_loop(), self._pools[kind.pool]
        if kind.prepare is None:
            return await loop.run_in_executor(pool, kind.work, order)
        held = await asyncio.to_thread(kind.prepare, order)
        try:
            return await loop.run_in_executor(pool, kind.work, order, held)
        finally:
            await asyncio.to_thread(held.close)
