"""Run work in threads that is always waited for: it uses memory that is given back afterwards."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.checkpoint import priority

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def nice_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads of the lowest priority."""
    return ThreadPoolExecutor(threads, name, initializer=priority.give_way)


async def in_thread(pool: ThreadPoolExecutor, work: Callable[..., T], *args: Any) -> T:
    """The result of `work`. Cancelled, it waits for the thread first; a result that has a `close()` is
    closed then."""
    future = asyncio.get_running_loop().run_in_executor(pool, work, *args)
    try:
        await asyncio.wait([future])
    except BaseException:
        await undo(future)
        raise
    return future.result()


async def undo(future: asyncio.Future[Any]) -> None:
    """Wait for a thread whose result nobody wants any more, and close that result."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # whoever called us is being cancelled already, and will say so
    if future.cancelled() or future.exception() is not None:
        return
    close = getattr(future.result(), "close", None)
    if close is not None:
        close()
