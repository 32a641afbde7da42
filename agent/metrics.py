"""The agent's /metrics: what an operator needs of one node."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controlplane import __version__
from controlplane.core.model import MemberPhase
from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.metrics_core import Metric

    from agent.node import Node

_DROPPED = "dropped_"
_TALLIES = (
    ("uploaded_bytes", "Chunks written to a job's storage", "training_job"),
    ("mirrored_bytes", "Chunks copied to a job's second storage", "training_job"),
    ("mirror_behind", "Manifests that are not published at the second storage", "training_job"),
    ("stage_seconds", "Time spent in the stages of saving and loading", "stage"),
    ("chunks", "Chunks of saved parts by how they are encoded", "codec"),
    ("scrubbed_bytes", "Read again in the background", "training_job"),
    ("scrub_repaired", "Files that had rotted and were mended", "training_job"),
    ("scrub_failed", "Chunks that have rotted and could not be mended", "training_job"),
    ("collected_bytes", "Freed on storage", "training_job"),
    ("orders_failed", "Orders about snapshots that could not be carried out", "order"),
)
"""Families of the tally of snapshot orders: name, meaning, label."""


class NodeCollector(Collector):
    """Reads a node's own state when it is asked for; nothing is kept twice."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._about()
        yield from self._members()
        yield from self._traffic()
        yield from self._devices()
        yield from self._uploads()
        yield from self._peers()

    def _about(self) -> Iterator[Metric]:
        labels = [self._node.settings.cluster, self._node.name]
        info = GaugeMetricFamily(
            "holdfast_agent_build_info", "Version of this agent", labels=["version", "cluster", "node"]
        )
        info.add_metric([__version__, *labels], 1)
        yield info
        yield _gauge("holdfast_agent_connected", "1 while a coordinator hears this agent", self._node.link.up)
        yield _gauge("holdfast_agent_term", "Highest term heard of", self._node.link.term)

    def _members(self) -> Iterator[Metric]:
        phases = collections.Counter(member.status.phase for member in self._node.members)
        family = GaugeMetricFamily("holdfast_agent_members", "Members by phase", labels=["phase"])
        for phase in MemberPhase:
            family.add_metric([phase.value], phases[phase])
        yield family
        step = GaugeMetricFamily("holdfast_rank_step", "Step a rank is in", labels=["training_job", "rank"])
        values = GaugeMetricFamily(
            "holdfast_rank_reported", "What the script reports", labels=["training_job", "rank", "name"]
        )
        for member in self._node.members:
            if member.alive and member.status.rank >= 0:
                labels = [member.status.job, str(member.status.rank)]
                step.add_metric(labels, member.step())
                for name, value in list(member.reported.items()):
                    values.add_metric([*labels, name], value)
        yield step
        yield values

    def _traffic(self) -> Iterator[Metric]:
        node = self._node
        yield _counter("holdfast_agent_beats", "Beats sent to the coordinator", node.link.beats)
        yield _counter("holdfast_agent_welcomes", "Streams that a coordinator took", node.link.welcomes)
        yield _gauge("holdfast_agent_gate_connections", "Ranks connected", node.gate.connections)
        dropped = CounterMetricFamily("holdfast_agent_dropped", "What was dropped", labels=["kind"])
        noted = CounterMetricFamily("holdfast_agent_events", "What happened on the node", labels=["kind"])
        for kind, count in list(node.counts.items()):
            family = dropped if kind.startswith(_DROPPED) else noted
            family.add_metric([kind.removeprefix(_DROPPED)], count)
        yield dropped
        yield noted

    def _devices(self) -> Iterator[Metric]:
        healthy = GaugeMetricFamily(
            "holdfast_device_healthy", "1: the sensor finds it well", labels=["device"]
        )
        reading = GaugeMetricFamily(
            "holdfast_device_reading",
            "What a sensor reads, unit in the figure's name",
            labels=["device", "figure"],
        )
        for name, device in list(self._node.devices.items()):
            healthy.add_metric([name], device.healthy)
            for figure, value in device.figures.items():
                reading.add_metric([name, figure], value)
        yield healthy
        yield reading

    def _uploads(self) -> Iterator[Metric]:
        snapshots = self._node.snapshots
        queued = GaugeMetricFamily(
            "holdfast_agent_snapshot_orders", "Orders about snapshots not done yet", labels=["queue"]
        )
        for queue, count in snapshots.queued().items():
            queued.add_metric([queue], count)
        yield queued
        for name, about, label in _TALLIES:
            family = CounterMetricFamily(f"holdfast_agent_{name}", about, labels=[label])
            for value, total in snapshots.site.tally.of(name).items():
                family.add_metric([value], total)
            yield family
        yield from self._storages()

    def _storages(self) -> Iterator[Metric]:
        storages = self._node.snapshots.site.storages
        limits = GaugeMetricFamily(
            "holdfast_agent_storage_limit", "What a storage cannot promise", labels=["storage", "limit"]
        )
        for storage, words in storages.limits.items():
            for limit in words:
                limits.add_metric([storage, limit], 1)
        yield limits
        moved = CounterMetricFamily(
            "holdfast_agent_storage_bytes", "Moved to and from a storage", labels=["storage", "direction"]
        )
        busy = CounterMetricFamily(
            "holdfast_agent_storage_busy_seconds",
            "Time in which a storage was read or written",
            labels=["storage", "direction"],
        )
        retries = CounterMetricFamily(
            "holdfast_agent_storage_retries", "Attempts that were made again", labels=["storage", "reason"]
        )
        for storage, totals in storages.totals().items():
            moved.add_metric([storage, "read"], totals.bytes_read)
            moved.add_metric([storage, "write"], totals.bytes_written)
            busy.add_metric([storage, "read"], totals.read_s)
            busy.add_metric([storage, "write"], totals.write_s)
            for reason, count in totals.retries.items():
                retries.add_metric([storage, reason], count)
        yield from (moved, busy, retries)

    def _peers(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "holdfast_agent_peer", "Copies of snapshots between nodes: bytes and events", labels=["kind"]
        )
        for kind, count in list(self._node.peers.counts.items()):
            family.add_metric([kind], count)
        yield family
        yield _gauge(
            "holdfast_agent_peer_waiting", "Copies not at their partner yet", self._node.peers.waiting
        )
        yield _gauge("holdfast_agent_peer_copies", "Copies kept for others", len(self._node.peers.copies()))


class MetricsServer:
    """Serves one node's metrics over HTTP."""

    def __init__(self, node: Node, address: str) -> None:
        """Raises SettingsError when the address cannot be served at."""
        registry = CollectorRegistry()
        registry.register(NodeCollector(node))
        host, _, port = address.rpartition(":")
        self._server: WSGIServer
        self._thread: Thread
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(
                f"--metrics {address} cannot be served: {error}; give a free host:port, or port 0"
            ) from error
        self.address = f"{host}:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, value=float(value))


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, about, value=float(value))
