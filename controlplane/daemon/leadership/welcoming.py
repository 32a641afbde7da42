"""Say how often agents send what, by how many nodes there are, so that one leader can hear them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.wire import codec

if TYPE_CHECKING:
    from controlplane.wire import control_pb2 as pb

BEATS_PER_S = 1000
"""Heartbeats per second that one leader should get in all. With more nodes, each sends them less often; also
those that come first to a new leader, which knows from etcd how many there are."""
REPORTING_NODES_MAX = 100
"""In larger clusters heartbeats alone tell of the snapshots that ranks offer, but for rank 0: a message of
each rank would be several times as many messages as heartbeats are."""


def beat_interval_s(nodes: int, node_timeout_s: float) -> float:
    """How often (s) each of so many nodes sends a heartbeat."""
    return min(node_timeout_s / 6, max(1.0, nodes / BEATS_PER_S))


def welcome(
    cluster: str, term: int, nodes: int, node_timeout_s: float, window_s: float
) -> pb.CoordinatorMessage:
    """Return the answer to an agent that is accepted into a cluster of so many nodes.

    `window_s`: how often it reports step times, over which steps are looked at together; 0: never."""
    return codec.welcome(
        cluster,
        beat_interval_s(nodes, node_timeout_s),
        term,
        window_s,
        snapshots_by_beats=nodes > REPORTING_NODES_MAX,
    )
