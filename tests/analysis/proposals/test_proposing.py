"""Proposals follow from what was measured, the greatest gain first, and what was not is said."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import WITHIN_STEPS
from controlplane.analysis.proposals.proposal import SettingChange
from controlplane.analysis.proposals.proposing import propose
from controlplane.core.elasticity import slow_policy
from controlplane.daemon.telemetry import badput
from controlplane.daemon.telemetry.job_time import Spent
from controlplane.simulation.failures import Outage
from tests.analysis.proposals.played import BOUND, SLOW, failing, ran, reported

if TYPE_CHECKING:
    from controlplane.analysis.proposals.proposal import Proposal, Tuning

HOUR_S = 3600.0
WELL = Spent(3500.0, {"forming": 100.0})


def of(found: Tuning, setting: str) -> Proposal:
    return next(each for each in found.proposals if each.setting == setting)


def why(found: Tuning, setting: str) -> str:
    return next(each.reason for each in found.withheld if each.setting == setting)


def numbers_of(told: Proposal) -> dict[str, float]:
    return {name: value for name, value in told.evidence if isinstance(value, float)}


def test_each_kind_of_finding_has_a_row_in_one_table() -> None:
    assert not policy.SETTINGS.keys() & policy.NO_SETTING.keys()
    assert policy.SETTINGS.keys() | policy.NO_SETTING.keys() == slow_policy.RESPONSES.keys()
    assert {*WITHIN_STEPS, "waiting", "redone", "restore"} <= badput.NAMES.keys()


def test_a_job_that_is_well_gets_no_proposal_and_the_reasons() -> None:
    found = propose(reported(WELL), 0)
    assert found.proposals == ()
    told = {each.setting for each in found.withheld}
    assert told >= {"snapshots", "spares", "loader", "placement", "communication", "layout", "micro-batch"}
    assert told >= {"bucket size", "heartbeat", "warm spares"}
    assert all(each.reason for each in found.withheld)
    assert "0 failures so far" in why(found, "snapshots")


@pytest.mark.parametrize(("times", "way"), [(0.1, "times as far apart"), (8.0, "times as often")])
def test_the_interval_is_brought_near_its_best_and_gains_what_was_predicted(times: float, way: str) -> None:
    stall_s, mtbf_s, recovery_s, failures = 20.0, HOUR_S, 60.0, 400
    best_s = math.sqrt(2.0 * stall_s * mtbf_s)
    before = failing(times * best_s, stall_s, mtbf_s, recovery_s, failures)
    told = of(propose(reported(before), failures), "snapshots")
    numbers = numbers_of(told)
    assert way in told.action and not told.at_most
    assert numbers["stall_s"] == pytest.approx(stall_s, rel=0.3)
    assert numbers["mtbf_s"] == pytest.approx(mtbf_s, rel=0.15)
    after_s = times * best_s * numbers["proposed_interval_s"] / numbers["interval_s"]
    assert after_s == pytest.approx(best_s, rel=0.35)
    after = failing(after_s, stall_s, mtbf_s, recovery_s, failures, seed=2)
    gained = after.productive_s / after.total_s - before.productive_s / before.total_s
    assert numbers["expected_gain_ratio"] == pytest.approx(gained, abs=0.05)
    assert 0.0 < told.gain_ratio <= numbers["expected_gain_ratio"]


def test_the_intervals_of_the_job_are_named_from_what_to_what() -> None:
    report = reported(failing(60.0, 20.0, HOUR_S, 60.0, 400))
    assert of(propose(report, 400), "snapshots").changes == ()
    known = {"snapshot_every": 10, "checkpoint_every": 100, "storage": True}
    told = of(propose(report | {"settings": known}, 400), "snapshots")
    snapshots, checkpoints = told.changes
    factor = numbers_of(told)["proposed_interval_s"] / numbers_of(told)["interval_s"]
    assert snapshots == SettingChange("--snapshot-every", "10", str(round(10 * factor)))
    assert checkpoints.name == "--checkpoint-every" and int(checkpoints.after) % int(snapshots.after) == 0
    for hidden in ({"snapshot_auto": True}, {"checkpoint_auto": True}, {"snapshot_every": "10"}):
        assert of(propose(report | {"settings": known | hidden}, 400), "snapshots").changes == ()
    alone = of(propose(report | {"settings": known | {"storage": False}}, 400), "snapshots")
    assert alone.changes == (snapshots,), "without a storage there are no checkpoints"


def test_recoveries_that_waited_for_new_processes_speak_for_warm_spares() -> None:
    dead = [Outage(number % 4, 300 + 80 * number, 300 + 80 * number, "exit") for number in range(40)]
    parts = ran(*dead, hours=1.0, timeout_s=15.0).parts()
    told = of(propose(reported(WELL) | parts, 40), "warm spares")
    assert told.changes == (SettingChange("--spares", "0", "1"),) and told.at_most
    numbers = numbers_of(told)
    assert numbers["recoveries_count"] == 40
    assert told.gain_ratio == pytest.approx(numbers["started_s"] / HOUR_S)
    few = ran(*dead[:2], hours=1.0, timeout_s=15.0).parts()
    assert "recoveries that waited for a new process: 2 so far, and 3 are needed" in why(
        propose(reported(WELL) | few, 2), "warm spares"
    )
    rare = ran(*dead[:3], hours=10.0, timeout_s=15.0).parts()
    assert "3 recoveries waited 0.1% of the time" in why(propose(reported(WELL) | rare, 3), "warm spares")
    assert "no recovery of this leader" in why(propose(reported(WELL) | ran().parts(), 0), "warm spares")


def test_an_interval_that_is_good_is_left_alone() -> None:
    spent = failing(math.sqrt(2.0 * 20.0 * HOUR_S), 20.0, HOUR_S, 60.0, 400)
    assert "near the best" in why(propose(reported(spent), 400), "snapshots")


@pytest.mark.parametrize(
    ("spent", "failures", "words"),
    [
        (failing(60.0, 20.0, HOUR_S, 60.0, 1), 1, "1 failures so far"),
        (failing(60.0, 20.0, HOUR_S, 60.0, 9), None, "number of the job's failures is not known"),
        (Spent(9e3, {"redone": 9.0}), 9, "snapshots have cost 0 s"),
        (Spent(9e3, {"snapshot": 9.0}), 9, "0 s of steps were redone"),
        (Spent(0.0, {"waiting": 9e3}), 9, "has made no steps"),
        (Spent(200.0, {"snapshot": 50.0}), 9, "the account has 250 s"),
    ],
)
def test_no_interval_is_proposed_where_something_is_missing(
    spent: Spent, failures: int | None, words: str
) -> None:
    found = propose(reported(spent), failures)
    assert "snapshots" not in {each.setting for each in found.proposals}
    assert why(found, "snapshots").startswith("not measured: ") and words in why(found, "snapshots")


def test_a_slow_rank_and_communication_gain_their_own_cost_of_the_time_in_steps() -> None:
    spent = Spent(700.0, {"forming": 200.0, "data": 100.0})
    found = propose(reported(spent, SLOW, BOUND), 0)
    settings = [each.setting for each in found.proposals]
    assert settings == ["communication", "placement", "communication", "loader"]
    gains = [each.gain_ratio for each in found.proposals]
    assert gains == pytest.approx([0.49 * 0.8, 0.4 * 0.8, 0.245 * 0.8, 0.1])
    placed = of(found, "placement")
    assert placed.at_most and (placed.action, placed.alternatives) == ("Swap the node.", ("Look.",))
    assert "rank 5 (n1, device 1): its own work takes 1.50 times" in placed.reason


def test_waits_for_nodes_before_the_first_start_speak_for_no_spare() -> None:
    report = reported(Spent(600.0, {"waiting": 400.0}))
    assert "400 s before" in why(propose(report, 0), "spares")
    report["time"]["lives"] = [
        {"since_s": 0.0, "lost_s": {"waiting": 100.0}}, {"since_s": 500.0, "lost_s": {"waiting": 300.0}},
    ]  # fmt: skip
    told = of(propose(report, 3), "spares")
    assert told.gain_ratio == pytest.approx(0.3) and told.at_most


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, None, "900", True])
@pytest.mark.parametrize("name", ["total_s", "productive_s", "unknown_s", "lost_s", "waiting"])
def test_an_account_that_cannot_be_believed_proposes_nothing(name: str, value: Any) -> None:
    report = reported(Spent(700.0, {"waiting": 200.0}), SLOW)
    (report["time"]["lost_s"] if name == "waiting" else report["time"])[name] = value
    found = propose(report, 9)
    assert found.proposals == ()
    assert [each.setting for each in found.withheld] == ["all"]
    assert why(found, "all").startswith("not measured: ")


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (None, "no account"),
        ({}, "total_s of the job's account is None"),
        ({"total_s": 0, "productive_s": 0, "unknown_s": 0, "lost_s": {}}, "no time yet"),
        ({"total_s": 9, "productive_s": 900, "unknown_s": 0, "lost_s": {}}, "differ from its total by 891 s"),
    ],
)
def test_without_an_account_nothing_is_proposed(time: Any, words: str) -> None:
    for report in (reported(WELL, SLOW) | {"time": time}, {"time": time}):
        found = propose(report, 9)
        assert found.proposals == () and words in why(found, "all")


@pytest.mark.parametrize("gain", [math.nan, math.inf, 0.0, 1.0, -0.5, 7.0, None, "0.4"])
def test_a_gain_that_cannot_be_is_no_proposal(gain: Any) -> None:
    report = reported(WELL, SLOW)
    for each in report["findings"][0]["recommendations"]:
        each["gain_ratio"] = gain
    found = propose(report, 0)
    assert found.proposals == () and "what the recommendation of slow_rank" in why(found, "placement")


@pytest.mark.parametrize(
    "changed",
    [{"recommendations": 5}, {"recommendations": [None]}, {"confidence": math.nan}, {"confidence": 0.3},
     {"kind": "of_tomorrow"}, {"kind": None}],
)  # fmt: skip
def test_a_finding_that_cannot_be_read_or_is_unsure_is_no_proposal(changed: dict[str, Any]) -> None:
    report = reported(WELL, SLOW)
    report["findings"][0] |= changed
    assert propose(report, 0).proposals == ()
    for findings in (None, "slow_rank", [7]):
        found = propose(report | {"findings": findings}, 0)
        assert found.proposals == () and why(found, "findings")


def test_a_gain_too_small_to_matter_is_told_and_not_proposed() -> None:
    small = replace(SLOW, recommendations=(replace(SLOW.recommendations[0], gain_ratio=0.005),))
    assert "gain 0.5% at most" in why(propose(reported(WELL, small), 0), "placement")


def test_the_report_stays_as_it_was() -> None:
    report = reported(failing(60.0, 20.0, HOUR_S, 60.0, 400), SLOW, BOUND)
    before = copy.deepcopy(report)
    first = propose(report, 400)
    assert report == before and propose(report, 400) == first
    gains = [each.gain_ratio for each in first.proposals]
    assert gains == sorted(gains, reverse=True) and all(0.0 < gain < 1.0 for gain in gains)
