"""The leader has links probed under suspicion, bounded, and takes only answers that it waits for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from controlplane.analysis.links import policy
from controlplane.core.records.diagnosis import LinkProbe, LinksProbed, ProbeEnd, ProbeLinks, StorageTraffic
from controlplane.daemon.diagnosis.feed import StepFeed
from controlplane.daemon.diagnosis.link_probes import LinkProbes
from tests.core.test_cluster import running
from tests.daemon.diagnosis.stage import Stage

CALM = ProbeEnd(1e-4, 1e-3, 1e-5)


def seen(far: str, speed: float = 1e8) -> LinkProbe:
    """A probe between calm nodes."""
    return LinkProbe(far, 0.001, speed, 100, "", 0.01, CALM, CALM)


class Nodes:
    """A running job on two nodes whose agents can be asked, or not."""

    def __init__(self, absent: str = "") -> None:
        self.cluster = running("submit nodes=2 nproc=2").cluster
        self.job = self.cluster.state.jobs["j"]
        self.absent, self.orders = absent, list[ProbeLinks]()
        for name in ("a", "b"):
            self.cluster.state.nodes[name].peer = f"{name}:7"
        self.probes = LinkProbes(self.cluster, self._send, term=3)

    def _send(self, order: ProbeLinks) -> str:
        if order.node == self.absent:
            return "its agent is not connected"
        self.orders.append(order)
        return ""

    def look(self, now_s: float, *, suspicious: bool = True) -> int:
        return self.probes.look(self.job, now_s, suspicious=suspicious)

    def answer(self, order: ProbeLinks, now_s: float, speed: float = 1e8, round_of: int = 0) -> None:
        found = tuple(seen(each.node, speed) for each in order.peers)
        answer = LinksProbed(order.node, 1, order.job, round_of or order.round, found)
        self.probes.take(answer, now_s)

    def ways(self, now_s: float) -> set[tuple[str, str]]:
        matrix = self.probes.matrix(self.job, now_s)
        return set() if matrix is None else set(matrix.ways)


def test_each_node_is_asked_to_probe_itself_and_its_peers_within_the_budget() -> None:
    stage = Nodes()
    assert stage.look(0.0) == 2
    assert [order.node for order in stage.orders] == ["a", "b"]
    assert [peer.node for peer in stage.orders[1].peers] == ["b", "a"]
    assert stage.orders[1].peers[1].address == "a:7"
    assert all(order.bytes_max == policy.BURST_BYTES for order in stage.orders)
    assert [order.begins_s for order in stage.orders] == [0.0, policy.SLOT_S]
    assert all(order.slot_s == 2 * policy.SLOT_S for order in stage.orders)
    assert stage.look(5.0) == 0  # not again so soon


def test_answers_make_a_matrix_while_links_are_suspected() -> None:
    stage = Nodes()
    assert stage.look(0.0, suspicious=False) == 2  # something to compare with
    for order in stage.orders:
        stage.answer(order, 1.0)
    assert stage.probes.matrix(stage.job, 2.0) is None
    stage.look(20.0)
    for order in stage.orders[2:]:
        stage.answer(order, 21.0, 2e7)
    matrix = stage.probes.matrix(stage.job, 22.0)
    assert matrix is not None
    assert matrix.ways["a", "b"].bytes_per_s == 2e7 and matrix.before["a", "b"].bytes_per_s == 1e8
    stage.look(22.0 + policy.CALM_S, suspicious=False)
    assert stage.probes.matrix(stage.job, 23.0 + policy.CALM_S) is None


def test_an_answer_counts_once_from_who_was_asked_in_this_round() -> None:
    stage = Nodes(absent="b")
    assert stage.look(0.0) == 1
    (order,) = stage.orders
    stage.answer(order, 1.0, round_of=order.round + 1)
    foreign = ProbeLinks("b", "j", order.round, order.peers, 0.1, 1, 0.1)
    stage.answer(foreign, 1.0)  # it was not asked
    stage.probes.take(LinksProbed("a", 1, "other", order.round, ()), 1.0)
    assert stage.ways(2.0) == set()
    nobody = (seen("c"), LinkProbe("b", math.nan, math.nan), seen("a"))
    stage.probes.take(LinksProbed("a", 1, "j", order.round, nobody), 2.0)
    assert stage.ways(3.0) == {("a", "a")}
    stage.answer(order, 3.0)
    assert stage.ways(3.0) == {("a", "a")}  # it has answered


@pytest.mark.parametrize("late_s", [policy.ANSWER_S + 1.0, 1e9])
def test_a_late_answer_is_left_out(late_s: float) -> None:
    stage = Nodes()
    stage.look(0.0)
    stage.answer(stage.orders[0], late_s)
    assert stage.ways(late_s) == set()


def test_a_node_without_a_peer_service_is_not_probed() -> None:
    stage = Nodes()
    stage.cluster.state.nodes["b"].peer = ""
    assert stage.look(0.0) == 0 and not stage.orders


def test_rounds_of_two_terms_have_different_numbers() -> None:
    stage = Nodes()
    stage.look(0.0)
    assert stage.orders[0].round > 3 << 32


def test_a_job_that_is_over_is_forgotten() -> None:
    stage = Nodes()
    stage.look(0.0)
    stage.probes.forget(set())
    stage.answer(stage.orders[0], 1.0)
    assert stage.ways(2.0) == set()


def probed_stage(**limits: Any) -> Stage:
    """A job whose communication takes a fifth of each step, on two nodes that can be probed."""
    stage = Stage(**limits)
    for name in ("a", "b"):
        stage.play.cluster.state.nodes[name].peer = f"{name}:7"
    return stage


async def test_a_job_that_communicates_too_long_has_its_links_probed_and_says_what_is_not_known() -> None:
    stage = probed_stage(communication_ratio=0.1)
    await stage.windows(8)
    asked = [body for kind, body in stage.written if kind == "LinksAsked"]
    assert "is a bottleneck" in asked[0]["reason"] and asked[0]["nodes"] == 2
    for order in stage.orders[-2:]:
        found = tuple(seen(each.node) for each in order.peers)
        stage.diagnosis.take_probes(LinksProbed(order.node, 1, "j", order.round, found))
    await stage.windows(1)
    links = stage.report_of()["links"]
    assert "is a bottleneck" in links["suspicion"] and links["code"] == "too_few_rounds"
    assert "2 directions were measured in fewer than 3 rounds" in links["unknown"]
    assert not [each for each in stage.report_of()["findings"] if "link" in each["kind"]]


async def test_a_job_that_communicates_as_it_should_is_probed_once() -> None:
    stage = probed_stage()
    await stage.windows(30)
    assert [body["reason"] for kind, body in stage.written if kind == "LinksAsked"] == [""]
    assert stage.report_of()["links"] == {"suspicion": "", "unknown": "", "code": ""}


async def test_probes_can_be_turned_off() -> None:
    stage = probed_stage(communication_ratio=0.1, link_probes=False)
    await stage.windows(12)
    assert stage.orders == []
    stage.diagnosis.take_probes(LinksProbed("a", 1, "j", 1, ()))
    assert stage.report_of()["links"]["unknown"] == "not probed yet"
    assert stage.report_of()["links"]["code"] == "not_probed"


async def test_the_traffic_of_a_storage_is_what_was_moved_since_the_window_before() -> None:
    feed, stage = StepFeed(), Stage()
    job = stage.play.cluster.state.jobs["j"]
    reports = list(stage.times({}))

    def window(moved: int, incarnation: int = 1) -> list[tuple[str, float, float]]:
        traffic = StorageTraffic(moved, moved / 100.0, 0, 0.0)
        for report in reports:
            feed.take(dataclasses.replace(report, storage=traffic, incarnation=incarnation))
        collected = feed.collect(job, {}, 0.0, 1.0)
        assert collected is not None
        found = collected.window()
        return [(each.node, each.bytes_written, each.write_s) for each in found.storage]

    assert window(500) == [("a", 0, 0.0), ("b", 0, 0.0)]  # what was before is nobody's window
    assert window(800) == [("a", 300, 3.0), ("b", 300, 3.0)]
    assert window(100, incarnation=2) == [("a", 0, 0.0), ("b", 0, 0.0)]  # another agent counts anew
    assert window(150, incarnation=2) == [("a", 50, 0.5), ("b", 50, 0.5)]
