"""Send the picture to viewers as server-sent events.

A viewer holds a position in the picture's patches, not a queue of its own. One that falls behind the patches
gets the whole state again. One that reads nothing is disconnected; it may come back with the last number that
it had, and gets what it missed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from controlplane.access.streams import RECHECK_S
from controlplane.daemon.page.picture import encoded, patched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.daemon.page.picture import Picture
    from controlplane.daemon.page.watch import PageWatch

    Send = Callable[[bytes], Awaitable[None]]

BEAT_S = 5.0
"""After this many seconds without news an empty event shows proxies and browsers that we live."""
RETRY_MS = 500
"""Milliseconds after which a browser connects again."""


def framed(kind: str, moment: str, text: bytes) -> bytes:
    """Return one event; `text` must be one line."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), moment.encode(), text)


class Live:
    """One viewer. `jobs`: it sees only these; (): all. `lost` returns why it may not look any
    more; "": it may."""

    def __init__(self, watch: PageWatch, jobs: tuple[str, ...], lost: Callable[[], str]) -> None:
        self._watch, self._jobs, self._lost = watch, jobs, lost
        self._sent_s = time.monotonic()

    async def run(self, send: Send, last: str) -> None:
        """Send what is new after the moment `last`, until the viewer may not look any more."""
        with self._watch.viewing():
            await send(b"retry: %d\n\n" % RETRY_MS)
            moment = last
            while not (lost := self._lost()):
                picture, news = await self._watch.ready(), self._watch.news
                moment = await self._send_new(send, picture, moment)
                if picture is self._watch.picture and moment == picture.moment:
                    await self._rest(send, news)
            await send(b"event: over\ndata: %s\n\n" % encoded({"error": lost}))

    async def _send_new(self, send: Send, picture: Picture, moment: str) -> str:
        """Send what is new after `moment`: the patches, or everything if they are not kept. Return the
        viewer's new moment."""
        patches = picture.since(moment)
        if patches is None:
            moment = picture.moment
            await send(framed("state", moment, picture.state(self._jobs)))
            return moment
        for patch in patches:
            text = patched(patch, self._jobs)
            moment = f"{picture.epoch}-{patch.number}"
            if text:
                await send(framed("patch", moment, text))
        return moment

    async def _rest(self, send: Send, news: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(RECHECK_S, BEAT_S)):
                await news.wait()
                self._sent_s = time.monotonic()
        if time.monotonic() >= self._sent_s + BEAT_S:
            self._sent_s = time.monotonic()
            await send(b"event: beat\ndata: {}\n\n")
