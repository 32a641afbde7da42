"""Run tasks for nodes, one per node at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class KeyedTasks:
    """The tasks that run now, by node."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, node: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin this task, unless one for the node runs already."""
        if node not in self._tasks:
            task = asyncio.get_running_loop().create_task(work())
            self._tasks[node] = task
            task.add_done_callback(lambda _: self._tasks.pop(node, None))

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
