"""When the leader is told of signs: at the beginning, and when they have changed."""

from __future__ import annotations

import pytest

from agent.deciding.outbox import Outbox
from agent.sensors.device_reports import FIRST_AFTER_S, NOT_KNOWN, TELL_EVERY_S, DeviceReports
from agent.sensors.readings import DeviceReading
from controlplane.core.records.node_checks import DeviceSign, NodeSensed
from controlplane.wire import codec


class Told:
    """A node's reports, and what the leader was told."""

    def __init__(self) -> None:
        self.sent: list[NodeSensed] = []
        self.reports = DeviceReports("n1", 7, self.sent.append)

    def read(self, now: float, **figures: float) -> None:
        self.reports.take(DeviceReading("gpu0", True, figures=figures, unknown=("PCIe replays",)), now)


def test_a_node_without_a_sign_tells_once_what_is_not_known() -> None:
    told = Told()
    for at in range(3600):
        told.read(float(at), utilization_percent=100.0)
        assert (told.reports.told() == []) == (at < FIRST_AFTER_S)
    assert told.sent == [NodeSensed("n1", 7, (), ("PCIe replays of gpu0",))] == told.reports.told()


def test_changes_are_told_and_not_too_often() -> None:
    told = Told()
    for at in range(200):
        told.read(float(at), remap_pending=float(at >= 10), pcie_replays=10.0 * at if at < 100 else 990.0)
    times = len(told.sent)
    assert 2 <= times <= 200 / TELL_EVERY_S + 1
    assert told.sent[-1].signs == (
        DeviceSign("gpu0", "pcie_replays", 500.0),
        DeviceSign("gpu0", "remap_pending", 1.0),
    )
    for at in range(200, 260):
        told.read(float(at), remap_pending=1.0, pcie_replays=990.0)
    assert len(told.sent) == times, "a steady fault is told once"


def test_what_was_told_is_not_kept_without_a_leader_and_begins_the_next_stream() -> None:
    told = Told()
    told.read(0.0)
    told.read(FIRST_AFTER_S)
    box = Outbox()
    box.keep(told.sent[0])
    box.record_sent(1.0, told.sent[0])
    assert box.replay(2.0, told.reports.told()) == told.sent


def test_a_leader_that_does_not_know_signs_is_sent_none() -> None:
    message = codec.to_coordinator(NodeSensed("n1", 7, (DeviceSign("gpu0", "heat", 30.0),), ("x",)))
    assert not codec.is_heard(message, frozenset({"step_times"}))
    assert codec.is_heard(message, frozenset({"node_sensed"}))


@pytest.mark.parametrize(("percent", "share"), [(50.0, 0.5), (250.0, 1.0), (-3.0, 0.0)])
def test_how_much_a_device_computes_is_a_share(percent: float, share: float) -> None:
    told = Told()
    assert told.reports.used(0) == NOT_KNOWN
    told.read(0.0, utilization_percent=percent)
    assert told.reports.used(0) == share and told.reports.used(1) == NOT_KNOWN
