"""All that one coordinator asks of Kubernetes, by its settings; what a reign needs of it."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from controlplane.daemon.kube.account import Account
from controlplane.daemon.kube.api import Api
from controlplane.daemon.kube.replacer import Replacer
from controlplane.daemon.kube.taints import Taints
from controlplane.daemon.kube.telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.core.effects import Effect
    from controlplane.core.events import Event
    from controlplane.settings import CoordinatorSettings


class Platform:
    """Lives as long as the coordinator. Without any of its settings there is none: see `of`."""

    def __init__(self, settings: CoordinatorSettings, api: Api) -> None:
        self.settings, self.api = settings, api
        pod = os.environ.get("POD_NAME", "") or socket.gethostname()
        self._telling = Telling(api, pod) if settings.kube_events else None

    @classmethod
    def of(cls, settings: CoordinatorSettings, count: Callable[[str, str], None]) -> Platform | None:
        """None when Kubernetes is not to be asked. Raises SettingsError when it is, and cannot be."""
        wanted = (settings.replace_nodes, settings.watch_hosts, settings.kube_events)
        if not any(wanted):
            return None
        return cls(settings, Api(Account.here(settings.kube_account), count=count))

    def hear(self, effect: Effect) -> None:
        """Told of every effect of a reign."""
        if self._telling is not None:
            self._telling.hear(effect)

    def replacer(self, post: Callable[[Event], None]) -> Replacer:
        """For one reign."""
        return Replacer(
            self.api, post, cordon=self.settings.cordon_hosts, force=self.settings.force_replacement
        )

    async def watch(self, post: Callable[[Event], None], core: Cluster) -> None:
        """For one reign: hosts that are to be left."""
        if not self.settings.watch_hosts:
            return

        def nodes(host: str) -> list[tuple[str, str]]:
            known = core.machine.nodes.values()
            return [(node.name, node.cordoned) for node in known if node.domain == host and node.up]

        await Taints(self.api, post, nodes).run()

    async def run(self) -> None:
        """For as long as the coordinator lives."""
        try:
            if self._telling is not None:
                await self._telling.run()
            await asyncio.get_running_loop().create_future()
        finally:
            await self.api.close()
