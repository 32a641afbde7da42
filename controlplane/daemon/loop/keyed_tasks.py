"""Tasks that are run for nodes, one per node at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Errands:
    """What is under way, by node."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, node: str, errand: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin this one, unless one for the node is under way."""
        if node not in self._tasks:
            task = asyncio.get_running_loop().create_task(errand())
            self._tasks[node] = task
            task.add_done_callback(lambda _: self._tasks.pop(node, None))

    async def close(self) -> None:
        """End all of them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
