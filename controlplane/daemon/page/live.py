"""The picture over server-sent events. A viewer holds a place in the picture's patches, not a queue of its
own: whoever falls behind them gets the whole state again, and whoever takes nothing at all is hung up on, may
come back with the last number it had, and gets what it missed."""

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
    from controlplane.daemon.page.watch import Watch

    Send = Callable[[bytes], Awaitable[None]]

BEAT_S = 5.0
"""An empty event is sent after so long without news: proxies and browsers see that we live."""
RETRY_MS = 500
"""A browser comes back after so long."""


def framed(kind: str, word: str, text: bytes) -> bytes:
    """One event; `text` is on one line."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), word.encode(), text)


class Live:
    """One viewer. `jobs`: it sees these only; (): all. `lost` is asked each time why it may not any more."""

    def __init__(self, watch: Watch, jobs: tuple[str, ...], lost: Callable[[], str]) -> None:
        self._watch, self._jobs, self._lost = watch, jobs, lost
        self._told_s = time.monotonic()

    async def run(self, send: Send, last: str) -> None:
        """Send what is new behind the moment `last`, until the viewer may not look any more."""
        with self._watch.viewing():
            await send(b"retry: %d\n\n" % RETRY_MS)
            word = last
            while not (lost := self._lost()):
                picture, news = await self._watch.ready(), self._watch.news
                word = await self._tell(send, picture, word)
                if picture is self._watch.picture and word == picture.word:
                    await self._rest(send, news)
            await send(b"event: over\ndata: %s\n\n" % encoded({"error": lost}))

    async def _tell(self, send: Send, picture: Picture, word: str) -> str:
        """Send what is behind `word`: the patches, or everything where they are not kept. Returns the moment
        that the viewer is at then."""
        patches = picture.since(word)
        if patches is None:
            word = picture.word
            await send(framed("state", word, picture.state(self._jobs)))
            return word
        for patch in patches:
            text = patched(patch, self._jobs)
            word = f"{picture.epoch}-{patch.number}"
            if text:
                await send(framed("patch", word, text))
        return word

    async def _rest(self, send: Send, news: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(RECHECK_S, BEAT_S)):
                await news.wait()
                self._told_s = time.monotonic()
        if time.monotonic() >= self._told_s + BEAT_S:
            self._told_s = time.monotonic()
            await send(b"event: beat\ndata: {}\n\n")
