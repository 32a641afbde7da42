"""Assemble the status page of one coordinator: its port, who may look, and the watch behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.daemon.page.listener import Listener
from controlplane.daemon.page.routes import PageRouter
from controlplane.daemon.page.watch import PageWatch
from controlplane.settings import is_loopback

if TYPE_CHECKING:
    from controlplane.access.authentication import Authenticator
    from controlplane.access.tls import TlsFiles
    from controlplane.daemon.server.context import ServerContext


class Page:
    """The status page of a leader or a standby.

    `public`: even where the coordinator authenticates its callers, everybody may look without a login. Where
    it authenticates nobody, everybody may look anyway. Acting always needs a login."""

    def __init__(
        self,
        front: ServerContext,
        address: tuple[str, int],
        tls: TlsFiles,
        asks: Authenticator,
        *,
        public: bool = False,
    ) -> None:
        """Bind. Raises OSError."""
        open_to_all = public or not (asks.certificates or asks.tokens is not None)
        host, port = address
        local = is_loopback(host)
        self._watch = PageWatch(front)
        self._site = PageRouter(front, self._watch, asks, open=open_to_all, local=local, secure=tls.serves)
        self._listener = Listener(host, port, tls, self._site.handle, self._site.refuse)
        self.port = self._listener.port
        if not tls.serves:  # all ports of a host share cookies: two pages here need two names
            self._site.cookie = f"holdfast-{self.port}"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer."""
        self._task = asyncio.create_task(self._watch.run(), name="page-watch")
        self._listener.start()

    async def close(self) -> None:
        """Disconnect everybody and free the port."""
        await self._listener.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
