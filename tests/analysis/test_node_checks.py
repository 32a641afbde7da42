"""The judgement of a node's readings against its peers."""

from __future__ import annotations

import math
from random import Random

import pytest

from controlplane.analysis.node_check_policy import DOUBTFUL, SURE
from controlplane.analysis.node_checks import JudgedReading, findings, judge
from holdfast.node_check.reading import NodeReading


def reading(value: float | None, name: str = "cpu.gemm.float32", *, higher: bool = True) -> NodeReading:
    return NodeReading(name, value, "flop/s" if higher else "s", higher=higher)


def one(own: NodeReading, *values: float | None) -> JudgedReading:
    peers = [[NodeReading(own.name, value, own.unit)] for value in values]
    (found,) = judge([own], peers)
    return found


@pytest.mark.parametrize(
    ("value", "peers", "judgement"),
    [
        (100.0, (100.0, 101.0, 99.0), "fine"),
        (85.0, (100.0, 101.0, 99.0), "slow"),
        (91.0, (100.0, 101.0, 99.0), "fine"),  # 9 sigma, but less than a tenth
        (85.0, (140.0, 60.0, 100.0), "fine"),  # 15 %, but less than one sigma
        (89.0, (100.0, 100.0, 100.0), "slow"),  # equal peers: any difference is more than their spread
        (91.5, (100.0, 100.0, 100.0), "fine"),
        (500.0, (100.0, 101.0, 99.0), "fine"),
        (50.0, (100.0, 101.0), "not judged"),
        (50.0, (), "not judged"),
        (None, (100.0, 101.0, 99.0), "not measured"),
        (math.nan, (100.0, 101.0, 99.0), "not measured"),
        (math.inf, (100.0, 101.0, 99.0), "not measured"),
        (-3.0, (100.0, 101.0, 99.0), "not measured"),
        (0.0, (100.0, 101.0, 99.0), "not measured"),
        (50.0, (100.0, 101.0, math.nan, -1.0, None, math.inf, 1e300), "not judged"),  # two sound ones
    ],
)
def test_both_a_sigma_and_a_tenth_are_needed_and_three_peers(
    value: float | None, peers: tuple[float | None, ...], judgement: str
) -> None:
    found = one(reading(value), *peers)
    assert found.judgement == judgement and (found.why or judgement == "fine")


def test_a_duration_is_worse_when_it_is_longer() -> None:
    assert one(reading(2.2, "disk.sync", higher=False), 1.0, 1.01, 0.99).judgement == "slow"
    assert one(reading(1.8, "disk.sync", higher=False), 1.0, 1.01, 0.99).judgement == "fine"
    assert one(reading(0.5, "disk.sync", higher=False), 1.0, 1.01, 0.99).judgement == "fine"


def test_a_reading_in_another_unit_is_no_peer() -> None:
    others = [[NodeReading("disk.write", 900.0, "MB/s")]] * 3
    (found,) = judge([NodeReading("disk.write", 5e8, "B/s")], others)
    assert (found.judgement, found.peers) == ("not judged", 0)


def test_what_is_broken_is_named_without_peers_and_is_no_peer_itself() -> None:
    wrong = NodeReading("cuda:1.gemm.float32", None, "flop/s", broken="3 of 16384 entries are wrong")
    (found,) = findings("n1", judge([wrong], []))
    assert (found.kind, found.severity, found.confidence) == ("node_part_broken", "critical", SURE)
    assert "n1" in found.subject and "cuda:1" in found.subject and "cordon" in found.recommendation
    odd = NodeReading(wrong.name, 1.0, "flop/s", broken="it computes wrong")
    sound = NodeReading(wrong.name, 100.0, "flop/s")
    assert judge([sound], [[odd], [sound], [sound]])[0].judgement == "not judged"


def test_whose_end_of_a_connection_it_is_nobody_knows() -> None:
    refused = NodeReading("link.connect:n2:7070", None, "s", higher=False, broken="no connection")
    (found,) = findings("n1", judge([refused], []))
    assert (found.severity, found.confidence) == (
        "warning",
        DOUBTFUL,
    ) and "cordon" not in found.recommendation


def test_on_a_busy_machine_slowness_is_doubtful() -> None:
    judged = judge([reading(50.0)], [[reading(100.0)]] * 3)
    quiet, busy = findings("n", judged), findings("n", judged, load=1.5)
    assert (quiet[0].confidence, busy[0].confidence) == (0.9, DOUBTFUL)
    assert "no ranks" in quiet[0].recommendation and "no ranks" not in busy[0].recommendation


def test_a_node_whose_cpus_others_had_is_not_accused_and_is_no_peer() -> None:
    name = "cpu.gemm.float32"
    crowded = NodeReading(name, 50.0, "flop/s", crowded=0.4)
    sound = NodeReading(name, 100.0, "flop/s")
    (found,) = judge([crowded], [[sound]] * 3)
    assert found.judgement == "not judged" and "40% of the CPU time" in found.why
    assert findings("n", [found]) == ()
    assert judge([sound], [[crowded]] * 3)[0].peers == 0


@pytest.mark.parametrize("seed", range(20))
def test_of_a_fleet_the_slowed_nodes_are_named_and_few_others(seed: int) -> None:
    """One node of 32 takes 1.3 times as long; the noise of the others is 3 %."""
    random = Random(seed)
    values = [100.0 * random.gauss(1.0, 0.03) for _ in range(32)]
    values[seed] /= 1.3
    nodes = [[reading(value)] for value in values]
    slow = {
        at
        for at in range(32)
        if findings(str(at), judge(nodes[at], [node for other, node in enumerate(nodes) if other != at]))
    }
    assert slow == {seed}
