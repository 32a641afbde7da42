"""All that one coordinator asks of Kubernetes, by its settings; what a reign needs of it."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from controlplane.daemon.kube.account import Account
from controlplane.daemon.kube.api import Api
from controlplane.daemon.kube.leading import Leading
from controlplane.daemon.kube.replacer import Replacer
from controlplane.daemon.kube.taints import Taints
from controlplane.daemon.kube.telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.settings import CoordinatorSettings


class Platform:
    """Lives as long as the coordinator. Without any of its settings there is none: see `of`."""

    def __init__(self, settings: CoordinatorSettings, api: Api) -> None:
        self.settings, self.api = settings, api
        pod = os.environ.get("POD_NAME", "") or socket.gethostname()
        self._telling = Telling(api, pod) if settings.kube_events else None
        self._leading = Leading(api, pod) if settings.label_leader else None

    @classmethod
    def of(cls, settings: CoordinatorSettings, count: Callable[[str, str], None]) -> Platform | None:
        """None when Kubernetes is not to be asked. Raises SettingsError when it is, and cannot be."""
        wanted = (
            settings.replace_nodes, settings.watch_hosts, settings.kube_events, settings.label_leader,
        )  # fmt: skip
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
        """For one reign: our pod is labelled, and hosts are watched that are to be left."""
        works = [self._leading.run()] if self._leading is not None else []
        works += [self._watch_hosts(post, core)] if self.settings.watch_hosts else []
        await asyncio.gather(*works)

    async def _watch_hosts(self, post: Callable[[Event], None], core: Cluster) -> None:
        def nodes(host: str) -> list[tuple[str, str]]:
            known = core.machine.nodes.values()
            return [(node.name, node.cordoned) for node in known if node.domain == host and node.up]

        await Taints(self.api, post, nodes).run()

    async def run(self) -> None:
        """For as long as the coordinator lives."""
        if self._leading is not None:
            await self._leading.put(None)
        if self._telling is not None:
            await self._telling.run()
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Ask no more; when the last reign is over."""
        await self.api.close()
