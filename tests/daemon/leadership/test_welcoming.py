"""How often agents are asked to send what, by the size of the cluster."""

from __future__ import annotations

import pytest

from controlplane.daemon.leadership.welcoming import REPORTING_NODES_MAX, beat_interval_s, welcome
from controlplane.wire import codec
from controlplane.wire.versions import STEP_BEAT


@pytest.mark.parametrize(
    ("nodes", "interval_s"), [(1, 1.0), (1_000, 1.0), (3_000, 3.0), (5_000, 5.0), (10_000, 5.0)]
)
def test_many_nodes_send_heartbeats_less_often(nodes: int, interval_s: float) -> None:
    assert beat_interval_s(nodes, 30.0) == interval_s


def test_a_short_timeout_has_its_heartbeats_in_time() -> None:
    assert beat_interval_s(10_000, 6.0) == 1.0


@pytest.mark.parametrize("nodes", [REPORTING_NODES_MAX, REPORTING_NODES_MAX + 1])
def test_in_a_large_cluster_heartbeats_tell_of_snapshots(nodes: int) -> None:
    told = codec.order_from(welcome("c", 3, nodes, 30.0, 10.0))
    assert isinstance(told, codec.Welcome)
    assert told.snapshots_by_beats is (nodes > REPORTING_NODES_MAX)
    assert STEP_BEAT in told.hears and told.step_times_every_s == 10.0
