"""The picture over server-sent events. A viewer holds a place in the picture's patches, not a queue of its
own: whoever falls behind them gets the whole state again, and whoever takes nothing at all is hung up on, may
come back with the last number it had, and gets what it missed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.daemon.page.picture import patched

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
    """One viewer. `jobs`: it sees these only; (): all. `allowed` is asked each time whether it may."""

    def __init__(self, watch: Watch, jobs: tuple[str, ...], allowed: Callable[[], bool]) -> None:
        self._watch, self._jobs, self._allowed = watch, jobs, allowed

    async def run(self, send: Send, last: str) -> None:
        """Send what is new behind the moment `last`, until the viewer may not look any more."""
        with self._watch.viewing():
            await send(b"retry: %d\n\n" % RETRY_MS)
            word = last
            while self._allowed():
                picture, news = await self._watch.ready(), self._watch.news
                word = await self._tell(send, picture, word)
                if picture is self._watch.picture and word == picture.word:
                    await self._rest(send, news)

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
        try:
            async with asyncio.timeout(BEAT_S):
                await news.wait()
        except TimeoutError:
            await send(b"event: beat\ndata: {}\n\n")
