"""Run work in threads that are always waited for: it uses memory that is given back afterwards.

asyncio abandons the thread of a cancelled call. A thread that still writes to shared memory would then write
to memory that somebody else has got, or that is unmapped."""

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
    """Return the result of `work`.

    When cancelled, it waits for the thread first, and closes a result that has a `close()`."""
    future = asyncio.get_running_loop().run_in_executor(pool, work, *args)
    try:
        await asyncio.wait([future])
    except BaseException:
        await undo(future)
        raise
    return future.result()


async def undo(future: asyncio.Future[Any]) -> None:
    """Wait for a thread whose result is not wanted any more, and close that result."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # the caller is being cancelled already, and raises that itself
    if future.cancelled() or future.exception() is not None:
        return
    close = getattr(future.result(), "close", None)
    if close is not None:
        close()
