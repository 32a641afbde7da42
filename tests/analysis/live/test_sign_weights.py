"""What signs of sensors weigh: the table, what is said of them, and what is never enough."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.nodes_at_risk import risk
from controlplane.analysis.live.detectors.sign_weights import ROWS, SOURCES, XIDS, weighed
from controlplane.analysis.live.readings import NodeSigns
from controlplane.core.records.node_checks import DeviceSign
from controlplane.core.records.timing import REPORT, CoreSettings
from tests.analysis.live.jobs import job, kinds, opened, watched


def node(*signs: tuple[str, str, float], not_known: str = "") -> NodeSigns:
    return NodeSigns("n1", 0.0, devices=tuple(DeviceSign(*each) for each in signs), not_known=not_known)


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ([("gpu0", "heat", 30.0)], 0.15),
        ([("gpu0", "remap_pending", 1.0)], 0.2),
        ([("gpu0", "remap_failed", 1.0)], 0.5),
        ([("gpu0", "xid", 79.0)], 0.5),
        ([("gpu0", "xid", 48.0), ("gpu0", "xid", 63.0), ("gpu1", "xid", 94.0)], 0.3),
        ([("gpu0", "corrected_errors", 5.0)], 0.0),
        ([("gpu0", "corrected_errors", 10.0), ("memory", "corrected_errors", 500.0)], 0.1),
        ([("memory", "uncorrected_errors", 1.0), ("network eth0", "link_errors", 100.0)], 1 - 0.7 * 0.85),
        ([("gpu0", "pcie_replays", 50.0), ("gpu0", "nvlink_replays", 50.0)], 0.0),
        ([("gpu0", "xid", 13.0), ("gpu0", "xid", 31.0), ("gpu0", "xid", 43.0)], 0.0),
        ([("gpu0", "of a newer agent", 7.0)], 0.0),
    ],
)
def test_the_risk_is_that_of_the_table(signs: list[tuple[str, str, float]], expected: float) -> None:
    assert risk(node(*signs)) == pytest.approx(expected)


def test_a_whole_node_of_hot_and_braked_devices_is_not_named() -> None:
    """Nor does anything drain one with the default policy, which is to report."""
    codes = ("heat", "power_brake", "hardware_slowdown")
    hot = node(*((f"gpu{index}", code, 60.0) for index in range(8) for code in codes))
    assert risk(hot) == pytest.approx(1 - 0.85 * 0.9 * 0.9) and risk(hot) < policy.RISK_LIMIT
    assert opened(watched(replace(each, nodes=(hot,)) for each in job(12))) == []
    lost = hot._replace(score_ratio=1 / 3, failures="1 x node_lost")
    assert risk(lost) < 0.52, "with a loss it is a little more than enough"
    assert CoreSettings().node_risk_policy == REPORT


def test_a_node_is_named_with_its_signs_and_what_to_do_about_each() -> None:
    found = node(
        ("gpu3", "remap_pending", 1.0),
        ("gpu5", "xid", 64.0),
        ("gpu6", "xid", 95.0),
        ("gpu0", "heat", 30.0),
        not_known="NVLink errors of gpu0 and 7 more",
    )
    (named,) = opened(watched(replace(each, nodes=(found,)) for each in job(12)))
    assert kinds([named]) == [("node_at_risk", "node n1")]
    for words in (
        "gpu5: Xid 64 within a day (the remap of a memory row could not be recorded), and 1 more such",
        "gpu3: the remap of a memory row is pending",
        "gpu0: held back by heat 30 s or more of the last 60 s",
        "not known: NVLink errors of gpu0 and 7 more",
    ):
        assert words in named.reason
    evidence = dict(named.evidence)
    assert str(evidence["device_signs"]).count(";") == 2
    assert evidence["not_known"] == "NVLink errors of gpu0 and 7 more"
    do = [each.action for each in named.recommendations]
    assert "holdfast drain n1" in do[0] and do[1].startswith("gpu5: drain the node and reset the device")
    assert do[2].startswith("gpu3: reset it (`nvidia-smi -r`) when the node is drained next")


def test_what_a_newer_agent_shows_is_not_known() -> None:
    found = node(("gpu0", "remap_failed", 1.0), ("gpu0", "fans_stopped", 1.0))
    (named,) = opened(watched(replace(each, nodes=(found,)) for each in job(12)))
    assert named.reason.endswith("not known: what signs of a newer agent weigh (fans_stopped)")


def test_where_everything_is_known_nothing_is_said_of_it() -> None:
    (named,) = opened(watched(replace(each, nodes=(node(("gpu0", "xid", 79.0)),)) for each in job(12)))
    assert "not known" not in named.reason and dict(named.evidence)["not_known"] == ""


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs/diagnosis/prediction.md").read_text()
    lines = [line.split(" | ") for line in page.splitlines()]
    weights = {cells[1]: cells[2] for cells in lines if len(cells) == 5}
    assert {code: f"{row.weight:g}" for code, row in ROWS.items()}.items() <= {
        code.strip("`"): weight for code, weight in weights.items()
    }.items()
    told = dict[int, float]()
    for part in weights["`xid`"].split("; "):
        numbers, _, weight = part.rpartition(": ")
        told |= {int(each): float(weight) for each in re.findall(r"\d+", numbers)}
    assert told == {number: row.weight for number, row in XIDS.items()}


def test_every_row_has_a_source_and_says_its_number() -> None:
    for code, row in ROWS.items():
        assert row.source in SOURCES and 0 < row.weight <= policy.RISK_LIMIT and row.advice
        (found,) = weighed([DeviceSign("gpu0", code, 5000.0)])
        assert found.words.startswith("gpu0: ") and "{" not in found.words
    assert all(0 < row.weight <= policy.RISK_LIMIT and row.words and row.advice for row in XIDS.values())
