"""End this process when its event loop hangs, so that its connections break.

gRPC's own threads answer the keepalives of a process that does nothing any more: agents would stay with a
leader that hangs, although its lease has run out and another one leads. So a thread counts its own waits in
which the loop has not turned. A process that is stopped, or suspended with its machine, waits for nothing and
counts nothing, and one that is short of CPU is short of it in this thread, too. A call that computes without
an end in C keeps this thread from running; then the kernel's timer of CPU time, which nobody has set back,
ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

WAITS = 60
"""Waits of the thread within the limit."""

TELL_S = 2.0
"""Seconds in which the reason must be logged. What hangs may be the log."""

EXIT_HANGS = 1

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def hang_watch(limit_s: float, end: Callable[[str], None]) -> AsyncIterator[None]:
    """Within it, `end` is called, in another thread, when the event loop has not turned for `limit_s`.

    Seconds are those in which this process could run. `end`: takes the reason."""
    watch = _Watch(asyncio.get_running_loop(), limit_s, end)
    watch.thread.start()
    try:
        yield
    finally:
        watch.stopped.set()
        await asyncio.to_thread(watch.thread.join)
        signal.setitimer(signal.ITIMER_PROF, 0.0)


@contextlib.asynccontextmanager
async def ends_when_it_hangs(limit_s: float) -> AsyncIterator[None]:
    """Within it, this process ends when its event loop hangs for `limit_s`."""
    if sys.stderr is not None:
        faulthandler.register(signal.SIGPROF, chain=True)  # says where, then the default follows: the end
    async with hang_watch(limit_s, end_process):
        yield


def end_process(reason: str) -> None:
    """Say why, and end this process at once, whatever its other threads do."""
    telling = threading.Thread(target=log.critical, args=("%s", reason), daemon=True)
    telling.start()
    telling.join(TELL_S)
    os._exit(EXIT_HANGS)


class _Watch:
    """Asks a loop, from a thread, whether it turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float, end: Callable[[str], None]) -> None:
        self._loop, self._limit_s, self._end = loop, limit_s, end
        self._loop_thread = threading.get_ident()
        self._turned = True
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="hang-watch", daemon=True)

    def _run(self) -> None:
        waits = 0
        while not self.stopped.wait(self._limit_s / WAITS):
            signal.setitimer(signal.ITIMER_PROF, self._limit_s)
            if self._turned:
                self._turned, waits = False, 0
                self._loop.call_soon_threadsafe(self._turn)
            elif (waits := waits + 1) > WAITS:
                self._end(self._reason())
                return

    def _turn(self) -> None:
        self._turned = True

    def _reason(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        place = "".join(traceback.format_stack(frame)) if frame else "    unknown\n"
        return (
            f"this coordinator hangs: its event loop has not turned for {self._limit_s:.0f} s. It ends, so "
            f"that agents go to the next leader. It was here:\n{place}"
        )
