"""Run tasks that nobody waits for, and end those that are left when their owner closes; run some together.

An event loop refers to its tasks weakly: one that nobody keeps may vanish before it is done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def together(*works: Coroutine[None, None, None]) -> None:
    """Run these at the same time, until all are done or one fails: then the others are cancelled.

    Raises an exception group of what has failed. They get a task of their own, because asyncio.TaskGroup
    leaves a mark on the one that waits in it when another fails: it counts as a task that is being cancelled.
    There asyncio.timeout raises CancelledError instead of TimeoutError until Python 3.11.3, and the task ends
    without a word.

    Who is cancelled while the others end gets CancelledError, as always: a group hides that, and an owner
    that cancels and waits would wait for ever."""
    caller = asyncio.current_task()
    assert caller is not None
    before = caller.cancelling()
    try:
        await asyncio.get_running_loop().create_task(_in_a_group(works))
    except BaseExceptionGroup as failed:
        if caller.cancelling() > before:
            raise asyncio.CancelledError from failed
        raise
    finally:
        for work in works:
            work.close()  # cancelled before their task had its first turn, they have not begun


async def _in_a_group(works: tuple[Coroutine[None, None, None], ...]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


class BackgroundTasks:
    """The tasks of one owner that run now."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin a task. It handles its own errors."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
