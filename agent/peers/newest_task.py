"""Run one task per job: a newer order replaces the one that is under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


class NewestTasks:
    """The tasks that carry out orders, by job."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, job: str, work: Coroutine[None, None, None]) -> None:
        """Run this work for a job, in place of the job's work that is under way."""
        older = self._tasks.get(job)
        if older is not None:
            older.cancel()
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[job] = task
        task.add_done_callback(lambda done: self._forget(job, done))

    async def stop(self) -> None:
        """Cancel all work, and wait for it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, job: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(job) is task:
            del self._tasks[job]
