"""Nodes that may fail next: which signs are enough, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.nodes_at_risk import risk
from controlplane.analysis.live.readings import NodeSigns
from tests.analysis.live.jobs import job, kinds, opened, watched

LOSSES = NodeSigns("n1", 2.0 / 3.0, "2 x node_lost")


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (NodeSigns("n", 0.0), 0.0),
        (NodeSigns("n", 1.0 / 3.0, "1 x node_lost"), 0.3),
        (LOSSES, 0.6),
        (NodeSigns("n", 5.0, "9 x silent"), 0.9),
        (NodeSigns("n", 0.0, bad_devices=("gpu0",)), 0.3),
        (NodeSigns("n", 0.0, bad_devices=("gpu0",), held="it came back 3 times"), 1 - 0.7 * 0.8),
        (NodeSigns("n", 1.0, "3 x silent", ("gpu0",), "cut"), 1 - 0.1 * 0.7 * 0.8),
        (NodeSigns("n", 0.0, silent_s=59.0), 0.0),
        (NodeSigns("n", 1.0 / 3.0, "1 x node_lost", silent_s=60.0), 1 - 0.7 * 0.7),
    ],
)
def test_the_risk_is_that_of_the_table(signs: NodeSigns, expected: float) -> None:
    assert risk(signs) == pytest.approx(expected)


def test_a_node_is_named_with_its_reasons_and_what_is_not_known() -> None:
    quiet = NodeSigns("n0", 1.0 / 3.0, "1 x node_lost")
    worse = NodeSigns("n2", 0.9, "3 x signaled", bad_devices=("gpu1", "gpu3"))
    found = opened(watched(replace(each, nodes=(quiet, LOSSES, worse)) for each in job(12)))
    assert sorted(kinds(found)) == [("node_at_risk", "node n1"), ("node_at_risk", "node n2")]
    first, second = sorted(found, key=lambda each: each.subject)
    for words in (
        "90% of what quarantines",
        "3 x signaled",
        "gpu1, gpu3",
        "not known: what its sensors show",
    ):
        assert words in second.reason
    assert dict(first.place) == {"node": "n1"} and "holdfast drain n1" in first.recommendation
    assert policy.RISK_LIMIT <= first.confidence < 1.0


def test_a_node_that_reports_no_steps_is_silent_and_with_a_loss_at_risk() -> None:
    lost = NodeSigns("n1", 1.0 / 3.0, "1 x node_lost", silent_s=300.0)
    short = NodeSigns("n2", 0.0, silent_s=30.0)
    found = opened(watched(replace(each, nodes=(lost, short)) for each in job(12)))
    assert sorted(kinds(found)) == [("node_at_risk", "node n1"), ("telemetry_silent", "node n1")]
    (silent,) = [each for each in found if each.kind == "telemetry_silent"]
    assert dict(silent.evidence) == {"silent_s": 300.0} and dict(silent.place) == {"node": "n1"}


def test_of_many_nodes_the_worst_are_named() -> None:
    many = tuple(NodeSigns(f"n{at}", 0.7 + 0.01 * at, "x") for at in range(30))
    last = watched(replace(each, nodes=many) for each in job(4, 12))[-1]
    named = [each.subject for each in last.findings if each.kind == "node_at_risk"]
    assert len(named) == policy.NAMED_MAX and "node n29" in named and "node n0" not in named


def test_where_nothing_is_known_nobody_is_named() -> None:
    assert opened(watched(job(8))) == []
