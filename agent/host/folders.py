"""Recreate a node's folders when somebody removes them."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent.host.paths import Paths

log = logging.getLogger("holdfast.agent")


class Folders:
    """The run folder, with the rank server's socket in it, and the folder of shared memory.

    `socket_gone`: whether that socket was removed under its server; `reopen` makes the server listen at a new
    one."""

    def __init__(
        self, paths: Paths, socket_gone: Callable[[], bool], reopen: Callable[[], Awaitable[None]]
    ) -> None:
        self._paths, self._socket_gone, self._reopen_socket = paths, socket_gone, reopen
        self._opening: asyncio.Task[None] | None = None

    def repair(self) -> None:
        """Recreate what is gone. Living ranks keep their mapped memory and their connections.

        Raises OSError when a folder cannot be made."""
        paths = self._paths
        gone = [path for path in (paths.run, paths.logs, paths.memory) if not path.is_dir()]
        if gone:
            log.error("recreated after somebody removed them: %s", ", ".join(map(str, gone)))
            try:
                paths.create()
            except SettingsError as error:
                raise OSError(errno.ENOENT, str(error)) from error
        if self._socket_gone() and (self._opening is None or self._opening.done()):
            self._opening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self._reopen_socket()
        except OSError as error:  # the folder may be gone again: the next call retries
            log.warning("the socket for ranks cannot be opened: %s", error)
