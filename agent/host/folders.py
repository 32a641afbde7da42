"""Whether a node's folders are still there: when somebody removes them they are made again."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from agent.host.paths import Paths
    from agent.ranks.rank_server import Gate

log = logging.getLogger("holdfast.agent")


class Folders:
    """The run folder, with the socket for ranks in it, and the folder of shared memory."""

    def __init__(self, paths: Paths, gate: Gate) -> None:
        self._paths, self._gate = paths, gate
        self._opening: asyncio.Task[None] | None = None

    def mend(self) -> None:
        """Make again what is gone; ranks that live keep what they have mapped, and their connections. Raises
        OSError when it cannot be."""
        paths = self._paths
        gone = [path for path in (paths.run, paths.logs, paths.memory) if not path.is_dir()]
        if gone:
            log.error("removed by somebody, and made again: %s", ", ".join(map(str, gone)))
            try:
                paths.create()
            except SettingsError as error:
                raise OSError(errno.ENOENT, str(error)) from error
        if self._gate.gone and (self._opening is None or self._opening.done()):
            self._opening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self._gate.reopen()
        except OSError as error:  # the folder may be gone again: the next look tells
            log.warning("no socket for ranks: %s", error)
