"""One reign: everything that lives and ends with one term of leadership, around one Cluster."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.cluster import Cluster
from controlplane.core.effects import CheckpointChanged
from controlplane.core.events import CheckpointsFound, JobSubmitted
from controlplane.daemon.links import Links
from controlplane.daemon.loop import Loop, ReignOver
from controlplane.daemon.metrics_observer import Observer
from controlplane.daemon.performer import Performer
from controlplane.daemon.recorder import Recorder
from controlplane.wire import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.effects import Effect
    from controlplane.core.events import Elected, Event, JobStopRequested
    from controlplane.core.timing import CoreSettings
    from controlplane.daemon.journal import Journal
    from controlplane.daemon.metrics import Metrics
    from controlplane.daemon.recorder import Commit
    from controlplane.daemon.records import Records
    from controlplane.wire import control_pb2 as pb

GAUGE_INTERVAL_S = 1.0
BEATS_PER_S = 1000
"""What one leader should hear in all; with more nodes each beats less often."""


class Reign:
    """Built when elected, dropped when leadership is lost."""

    def __init__(
        self,
        cluster: str,
        core_settings: CoreSettings,
        elected: Elected,
        *,
        store: Commit,
        records: Records,
        journal: Journal,
        metrics: Metrics,
        held: Callable[[], bool],
    ) -> None:
        self.term = elected.term
        self._cluster_name, self._node_timeout_s = cluster, core_settings.node_timeout_s
        self._metrics, self._journal = metrics, journal
        self.core = Cluster(core_settings)
        self.links = Links(metrics)
        self.recorder = Recorder(store, records, self.post, self.term, metrics)
        self._performer = Performer(self.links, self.recorder, metrics, self._welcome)
        self._performer.term = self.term
        self._observer = Observer(metrics)
        self.loop = Loop(self.core, self.term, self._perform, journal, metrics)
        self.loop.heard = self._observer.event
        self.loop.held = held
        self.post(elected)

    def post(self, event: Event) -> None:
        """Have the core take this event."""
        self.loop.post(event)

    def _perform(self, effect: Effect) -> None:
        self._performer.perform(effect)
        self._observer.effect(effect)

    async def run(self) -> None:
        """Lead until cancelled, fenced (an exception group with Fenced), or the core raises."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run())
            group.create_task(self.recorder.run())
            group.create_task(self._show())

    async def settle(self, event: JobSubmitted | JobStopRequested) -> str:
        """Post an event; "" once etcd holds all that the core knows of its job, else why it does not."""
        try:
            await self.loop.ask(event)
        except ReignOver as over:
            return str(over)
        if self.core.fenced:
            return str(ReignOver())
        name = event.spec.job if isinstance(event, JobSubmitted) else event.job
        return await self._stored(self.core.unstored(name))

    async def adopt(self, event: CheckpointsFound) -> tuple[dict[str, str], str]:
        """Post what was found on a storage. Returns why which were refused, by id, and "" once etcd holds
        the others, else why it does not."""
        try:
            effects = await self.loop.ask(event)
        except ReignOver as over:
            return {}, str(over)
        if self.core.fenced:
            return {}, str(ReignOver())
        told = [each for each in effects if isinstance(each, CheckpointChanged) and each.job == event.job]
        refused = {each.checkpoint: each.reason for each in told if each.outcome == "refused"}
        return refused, await self._stored(self.core.unrecorded(event.job))

    async def _stored(self, tickets: tuple[int, ...]) -> str:
        for outcome in asyncio.as_completed(map(self.recorder.outcome, tickets)):
            if reason := await outcome:
                return reason  # what was queued behind it has not been asked for yet
        return ""

    def status(self, leader: str) -> pb.StatusReply:
        """What people ask to see."""
        now = time.monotonic()
        rows = {
            "jobs": view.jobs(self.core, now),
            "nodes": view.nodes(self.core, now),
            "ranks": view.ranks(self.core, now),
            "checkpoints": view.checkpoints(self.core, now),
        }
        return codec.status_message(self._cluster_name, self.term, leader, rows)

    def _welcome(self, term: int) -> pb.CoordinatorMessage:
        interval_s = min(self._node_timeout_s / 6, max(1.0, len(self.links) / BEATS_PER_S))
        return codec.welcome(self._cluster_name, interval_s, term)

    async def _show(self) -> None:
        """Keep the gauges that are counted from the cluster's state."""
        while True:
            self._observer.look(self.core)
            self._metrics.journal_lines_lost.set(self._journal.lines_lost)
            await asyncio.sleep(GAUGE_INTERVAL_S)
