"""Serve the agent's /metrics: what an operator needs to know of one node."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agent.daemon.metrics_table import FAMILIES, FIGURES, TALLIES
from controlplane.core.records.model import MemberPhase
from controlplane.scraping import ScrapeServer
from controlplane.settings import SettingsError, host_port
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from agent.daemon.node import NodeDaemon

_DROPPED = "dropped_"
_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


class _Sheet:
    """The answer to one scrape: every family once, in the order of the table."""

    def __init__(self) -> None:
        self.families: dict[str, Metric] = {
            name: _KINDS[family.kind](f"holdfast_{name}", family.about, labels=family.labels)
            for name, family in FAMILIES.items()
        }

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add one series. Raises KeyError for a name that the table does not have."""
        self.families[name].add_metric(list(labels), float(value))  # type: ignore[attr-defined]


class NodeCollector(Collector):
    """Reads the node's state at each scrape, so that no figure is stored twice."""

    def __init__(self, node: NodeDaemon) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        sheet = _Sheet()
        for part in (
            *(self._about, self._members, self._traffic, self._devices),
            *(self._uploads, self._storages, self._peers),
        ):
            part(sheet)
        yield from sheet.families.values()

    def _about(self, sheet: _Sheet) -> None:
        node = self._node
        sheet.add("agent_build_info", 1, __version__, node.settings.cluster, node.name)
        sheet.add("agent_connected", node.link.up)
        sheet.add("agent_term", node.link.term)

    def _members(self, sheet: _Sheet) -> None:
        phases = collections.Counter(member.status.phase for member in self._node.members)
        for phase in MemberPhase:
            sheet.add("agent_members", phases[phase], phase.value)
        for member in self._node.members:
            if member.alive and member.status.rank >= 0:
                labels = (member.status.job, str(member.status.rank))
                sheet.add("rank_step", self._node.members.step(member), *labels)
                for name, value in list(member.reported.items()):
                    sheet.add("rank_reported", value, *labels, name)

    def _traffic(self, sheet: _Sheet) -> None:
        node = self._node
        sheet.add("agent_beats", node.link.beats)
        sheet.add("agent_beats_relayed", node.beat_sender.sent)
        sheet.add("agent_beats_passed_on", node.beat_collector.passed_on)
        sheet.add("agent_beat_senders", node.beat_collector.senders)
        sheet.add("agent_welcomes", node.link.welcomes)
        sheet.add("agent_gate_connections", node.rank_server.connections)
        for kind, count in list(node.counts.items()):
            name = "agent_dropped" if kind.startswith(_DROPPED) else "agent_events"
            sheet.add(name, count, kind.removeprefix(_DROPPED))

    def _devices(self, sheet: _Sheet) -> None:
        for device, reading in list(self._node.devices.newest.items()):
            if reading.judged:
                sheet.add("device_healthy", reading.healthy, device)
            for figure, value in reading.figures.items():
                if figure in FIGURES:
                    name, factor = FIGURES[figure]
                    sheet.add(name, value * factor, device)
                else:
                    sheet.add("device_reading", value, device, figure)

    def _uploads(self, sheet: _Sheet) -> None:
        snapshots = self._node.snapshots
        for queue, count in snapshots.queued().items():
            sheet.add("agent_snapshot_orders", count, queue)
        for name in TALLIES:
            for labels, total in snapshots.context.tally.of(name).items():
                sheet.add(f"agent_{name}", total, *labels)

    def _storages(self, sheet: _Sheet) -> None:
        storages = self._node.snapshots.context.storages
        for storage, words in storages.limits.items():
            for limit in words:
                sheet.add("agent_storage_limit", 1, storage, limit)
        for storage, totals in storages.totals().items():
            sheet.add("agent_storage_bytes", totals.bytes_read, storage, "read")
            sheet.add("agent_storage_bytes", totals.bytes_written, storage, "write")
            sheet.add("agent_storage_busy_seconds", totals.read_s, storage, "read")
            sheet.add("agent_storage_busy_seconds", totals.write_s, storage, "write")
            for reason, count in totals.retries.items():
                sheet.add("agent_storage_retries", count, storage, reason)

    def _peers(self, sheet: _Sheet) -> None:
        peers = self._node.peers
        for kind, count in list(peers.counts.items()):
            sheet.add("agent_peer", count, kind)
        sheet.add("agent_peer_waiting", peers.waiting)
        sheet.add("agent_peer_copies", len(peers.copies()))


class AgentMetricsServer:
    """Serves one node's metrics over HTTP."""

    def __init__(self, node: NodeDaemon, address: str) -> None:
        """Raises SettingsError when the address cannot be bound."""
        registry = CollectorRegistry()
        registry.register(NodeCollector(node))
        host, port = host_port("--metrics", address)
        try:
            self._server = ScrapeServer(registry, host, port)
        except OSError as error:
            raise SettingsError(
                f"--metrics {address} cannot be served: {error}; give a free host:port, or port 0"
            ) from error
        self.address = f"{address.rpartition(':')[0]}:{self._server.port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
