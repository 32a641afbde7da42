"""Keep the private etcd of a local cluster alive, at the same address and folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError, UnreachableError, UsageError
from controlplane.cli.local.processes import wait_for_end
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.errors import EtcdError
from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.daemon.etcd.target import EtcdTarget
from controlplane.settings import EtcdSettings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STARTS_MAX = 3
REACH_TIMEOUT_S = 5.0
_BACKOFF_S = (0.0, 0.5, 2.0)


class KeptEtcd:
    """An etcd that is started again whenever it dies, and that dies with this process."""

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._server = PrivateEtcd(folder)
        self._on_change = on_change

    @property
    def pid(self) -> int:
        """Its process; 0 when it does not run."""
        return self._server.pid

    async def start(self) -> str:
        """Start it and return its endpoint. Raises UnreachableError with the reason and a solution."""
        try:
            await self._server.start()
        except EtcdError as error:
            raise UnreachableError(str(error)) from error
        self._on_change()
        return self._server.endpoint

    async def keep(self) -> None:
        """Start it again when it ends. Raises CliError when it does not come back."""
        while True:
            if self._server.pid:
                await wait_for_end(self._server.pid)
            await self._revive()

    async def stop(self) -> None:
        """End it. Its data stay."""
        await self._server.stop()

    async def _revive(self) -> None:
        if not (self._server.data_dir / "member").is_dir():
            raise CliError(
                f"etcd has ended, and its data in {self._server.data_dir} were removed while the job ran, so "
                "the run was ended; the same command starts again"
            )
        for attempt, pause_s in enumerate(_BACKOFF_S, 1):
            await asyncio.sleep(pause_s)
            try:
                await self._server.start()
            except EtcdError as error:
                if attempt == STARTS_MAX:
                    raise CliError(f"etcd does not start again: {error}") from error
            else:
                self._on_change()
                return


async def reach(endpoints: str) -> str:
    """Return the endpoints of the user's own etcd, once it has answered.

    Raises UsageError for impossible endpoints, UnreachableError when no usable etcd answers there."""
    try:
        target = EtcdTarget.of(EtcdSettings(etcd=endpoints))
    except SettingsError as error:
        raise UsageError(str(error)) from error
    async with Etcd(target, timeout_s=REACH_TIMEOUT_S) as etcd:
        try:
            await etcd.check()
        except EtcdError as error:
            raise UnreachableError(
                f"--etcd {endpoints}: {error}; name one that answers, or omit --etcd to start a private one"
            ) from error
    return endpoints
