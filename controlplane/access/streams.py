"""End the open streams of a port whose callers lose their credentials, and say why.

A call is authorized when it begins, but a stream may stay open for days. While streams are open, one task
looks each second whether a file has changed or a certificate has expired. Only then it checks all streams."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controlplane.access.authentication import Authenticator, Credentials

RECHECK_S = 1.0
"""Seconds between two looks at the files and at the clock."""
AT_ONCE = 500
"""Streams that are checked before other tasks get their turn."""


class OpenStream:
    """One open stream. `lost`: why its caller may not stay; "" while it may."""

    def __init__(self, shown: Credentials, task: asyncio.Task[object] | None) -> None:
        self.shown, self.lost = shown, ""
        self._task = task

    def end(self, lost: str) -> None:
        """Cancel the stream's task. Called again if that had no effect."""
        self.lost = lost
        if self._task is not None:
            self._task.cancel()


class OpenStreams:
    """Watches the open streams of one port, while there are any. `clock` is Unix time in s."""

    def __init__(self, asks: Authenticator, clock: Callable[[], float] = time.time) -> None:
        self._asks, self._clock = asks, clock
        self._open: set[OpenStream] = set()
        self._next_s = math.inf  # when the next certificate expires, Unix time
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def opened(self, shown: Credentials) -> Iterator[OpenStream]:
        """Watch a stream of this caller, which runs in the current task, until the context ends."""
        stream = OpenStream(shown, asyncio.current_task())
        self._open.add(stream)
        self._next_s = min(self._next_s, shown.ends_s)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="streams")
        try:
            yield stream
        finally:
            self._open.discard(stream)
            if not self._open and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        seen = -1  # no version: the first look checks all, as a file may just have changed
        while True:
            await asyncio.sleep(RECHECK_S)
            now_s, version = self._clock(), self._asks.refresh()
            if version != seen or now_s >= self._next_s:
                seen = version
                await self._look(now_s)

    async def _look(self, now_s: float) -> None:
        """End the streams that may not stay, and find out when the next certificate expires.

        A stream that was ended and is still open is due again at the next look."""
        next_s, self._next_s = math.inf, math.inf
        for number, stream in enumerate(list(self._open), 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            if stream not in self._open:
                continue
            if lost := stream.lost or self._asks.lost(stream.shown, now_s):
                stream.end(lost)
            next_s = min(next_s, now_s if stream.lost else stream.shown.ends_s)
        self._next_s = min(next_s, self._next_s)
