"""After how much silence a node counts as lost: shorter, longer, or why neither, from a simulated cluster."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import pytest

from controlplane.analysis.proposals import heartbeat, policy
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld
from controlplane.simulation.failures import Outage
from tests.analysis.proposals.played import SilentNodes, ran

HOUR_S = 3600.0


def outages(count: int) -> list[Outage]:
    """Nodes that die one after the other, one an hour, each for half an hour."""
    return [
        Outage(number % 4, (1 + number) * HOUR_S, (1.5 + number) * HOUR_S, "GPU") for number in range(count)
    ]


@functools.cache
def _ten() -> dict[str, Any]:
    return ran(*outages(10)).parts()


def ten_lost() -> dict[str, Any]:
    """What is measured where ten nodes were lost in twelve hours, each for silence alone."""
    return copy.deepcopy(_ten())


def told(parts: dict[str, Any]) -> Proposal | Withheld:
    return next(iter(heartbeat.heartbeats(parts)))


def test_lost_nodes_that_only_silence_showed_speak_for_a_shorter_timeout_and_gain_what_is_predicted() -> None:
    found = told(ten_lost())
    assert isinstance(found, Proposal) and found.at_most
    (change,) = found.changes
    assert (change.name, change.before) == ("--node-timeout-s", "60")
    after_s = float(change.after)
    numbers = dict(found.evidence)
    assert after_s == math.ceil(policy.SILENCE_FACTOR * float(numbers["longest_silence_s"]))
    assert found.gain_ratio == pytest.approx(10 * (60.0 - after_s) / (12 * HOUR_S))
    before, after = (ran(*outages(10), hours=12, timeout_s=each).ledger.total for each in (60.0, after_s))
    whole_s = 4 * 12 * HOUR_S
    gained = (before["detect"] - after["detect"]) / whole_s
    assert gained == pytest.approx(found.gain_ratio, rel=0.3) and gained <= found.gain_ratio
    assert found.confidence == pytest.approx(1 - 1 / math.sqrt(11))


def test_a_node_that_lived_and_came_near_the_timeout_keeps_it_as_it_is() -> None:
    made = SilentNodes(*outages(10))
    made.silent(3, 11.2 * HOUR_S, 55.0)
    made.run()
    found = told(made.parts())
    assert isinstance(found, Withheld)
    assert "cannot be much shorter: the longest silence of a node that lived was 55 s" in found.reason


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (ran, "no failure was noticed by the silence of a node: there was none"),
        (lambda: ran(*[Outage(1, h * HOUR_S, h * HOUR_S, "exit") for h in (1, 2)]), "2 killed after"),
        (lambda: ran(*outages(2)), "2 nodes were lost by silence (120 s of waiting), and 3 are needed"),
        (lambda: ran(*outages(3), hours=50), "would gain 0.1%: 3 nodes were lost"),
    ],
)
def test_no_shorter_timeout_without_evidence(made: Any, words: str) -> None:
    found = told(made().parts())
    assert isinstance(found, Withheld) and words in found.reason


def test_a_leader_that_has_listened_for_minutes_does_not_know_how_long_a_node_may_be_silent() -> None:
    parts = ten_lost()
    parts["listening"] |= {"listened_s": 1800.0}
    found = told(parts)
    assert isinstance(found, Withheld) and "has heard heartbeats for 1800 s, and needs 3600" in found.reason


def test_the_timeout_stays_above_the_settings_that_it_must_exceed() -> None:
    parts = ten_lost()
    parts["listening"]["longest_silence_s"] = 1.5
    found = told(parts)
    assert isinstance(found, Proposal) and found.changes[0].after == "11", "above --lease-ttl-s 10"
    parts["listening"]["must_exceed_s"]["--process-timeout-s"] = 55.0
    found = told(parts)
    assert isinstance(found, Withheld) and "it must exceed --process-timeout-s 55" in found.reason


def test_nodes_that_were_given_up_and_lived_speak_for_a_longer_timeout() -> None:
    made = SilentNodes(hours=3.0, timeout_s=20.0)
    for number in range(8):
        made.silent(number % 4, (0.3 + 0.3 * number) * HOUR_S, 24.0)
    made.run()
    found = told(made.parts())
    assert isinstance(found, Proposal) and not found.at_most
    assert found.changes == (SettingChange("--node-timeout-s", "20", "48"),)
    numbers = {name: float(value) for name, value in found.evidence}
    assert numbers["mistaken_count"] == 8 and numbers["longest_mistaken_s"] == pytest.approx(24.0, abs=0.1)
    saved_s = 8 * numbers["recovered_s"] - numbers["waited_instead_s"]
    assert found.gain_ratio == pytest.approx(saved_s / (3 * HOUR_S))


def test_a_node_that_was_cut_off_for_long_is_better_given_up() -> None:
    made = SilentNodes(hours=3.0, timeout_s=20.0)
    made.silent(1, HOUR_S, 600.0)
    made.run()
    found = told(made.parts())
    assert isinstance(found, Withheld)
    assert "heard again after 600 s at most" in found.reason and "s of waiting" in found.reason


def test_silent_processes_are_told_and_nothing_is_proposed_for_them() -> None:
    parts = ran().parts()
    parts["listening"]["noticed"]["silent"] = {"count": 4, "after_s": 22.0}
    _, processes = heartbeat.heartbeats(parts)
    assert isinstance(processes, Withheld) and processes.reason.startswith("not measured: 4 processes were")
    assert "5.5 s after the last sign of life each" in processes.reason


@pytest.mark.parametrize("value", [None, "x", math.nan, -1.0, True])
@pytest.mark.parametrize("name", ["node_timeout_s", "seen_s", "listened_s", "longest_silence_s", "noticed"])
def test_numbers_that_cannot_be_believed_propose_nothing(name: str, value: Any) -> None:
    parts = ten_lost()
    parts["listening"][name] = value
    found = told(parts)
    assert isinstance(found, Withheld) and found.reason.startswith("not measured: ")


def test_a_coordinator_of_the_version_before_tells_nothing_of_it() -> None:
    found = told({})
    assert isinstance(found, Withheld) and "the report has no 'listening'" in found.reason
