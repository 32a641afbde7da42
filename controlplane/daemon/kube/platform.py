"""Hold all that one coordinator uses of Kubernetes, by its settings, and give each leader term its part."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from controlplane.daemon.kube.account import ServiceAccount
from controlplane.daemon.kube.api import Api
from controlplane.daemon.kube.event_writer import EventWriter
from controlplane.daemon.kube.leading import LeaderLabel
from controlplane.daemon.kube.replacer import Replacer
from controlplane.daemon.kube.taints import HostWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.settings import CoordinatorSettings


class Platform:
    """Lives as long as the coordinator. `of` makes none when no setting wants Kubernetes."""

    def __init__(self, settings: CoordinatorSettings, api: Api) -> None:
        self.settings, self.api = settings, api
        pod = os.environ.get("POD_NAME", "") or socket.gethostname()
        self._event_writer = EventWriter(api, pod) if settings.kube_events else None
        self._leading = LeaderLabel(api, pod) if settings.label_leader else None

    @classmethod
    def of(cls, settings: CoordinatorSettings, count: Callable[[str, str], None]) -> Platform | None:
        """Return None when no setting wants Kubernetes. Raises SettingsError when one does and the API is
        not to be found."""
        wanted = (
            settings.replace_nodes, settings.watch_hosts, settings.kube_events, settings.label_leader,
        )  # fmt: skip
        if not any(wanted):
            return None
        return cls(settings, Api(ServiceAccount.here(settings.kube_account), count=count))

    def take(self, effect: Effect) -> None:
        """Take in an effect; called with every effect of a leader term."""
        if self._event_writer is not None:
            self._event_writer.take(effect)

    def replacer(self, post: Callable[[Event], None]) -> Replacer:
        """Return the replacer of one leader term."""
        return Replacer(
            self.api, post, cordon=self.settings.cordon_hosts, force=self.settings.force_replacement
        )

    async def watch(self, post: Callable[[Event], None], core: Cluster) -> None:
        """Label our pod and watch the hosts, if settings want it, for one leader term."""
        works = [self._leading.run()] if self._leading is not None else []
        works += [self._watch_hosts(post, core)] if self.settings.watch_hosts else []
        await asyncio.gather(*works)

    async def _watch_hosts(self, post: Callable[[Event], None], core: Cluster) -> None:
        def nodes(host: str) -> list[tuple[str, str]]:
            known = core.state.nodes.values()
            return [(node.name, node.cordoned) for node in known if node.domain == host and node.up]

        await HostWatch(self.api, post, nodes).run()

    async def run(self) -> None:
        """Write Events for as long as the coordinator lives. First remove the label that a former leader
        term may have left."""
        if self._leading is not None:
            await self._leading.put(None)
        if self._event_writer is not None:
            await self._event_writer.run()
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Send no more requests, after the last leader term."""
        await self.api.close()
