"""Probes are few, seldom, and no node is probed by two others at once; in small jobs, only one pair is."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from controlplane.analysis.links import policy
from controlplane.analysis.links.schedule import ProbePlan, Purpose, begins_s, peers_of, rest_s, slot_s

PAIR = ("a", "b")


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 33, 500, 1024])
def test_in_each_turn_each_node_is_probed_once(size: int) -> None:
    ring = [f"n{index}" for index in range(size)]
    turns = [peers_of(ring, index) for index in range(size)]
    assert [each[0] for each in turns] == ring
    for turn in zip(*turns, strict=True):
        assert set(Counter(turn).values()) == {1}
    assert len(turns[0]) <= 1 + max(policy.ALL_PAIRS_UP_TO - 1, 2 * math.ceil(math.log2(size or 1)))


@pytest.mark.parametrize("size", range(1, policy.ALL_PAIRS_UP_TO + 1))
def test_in_a_small_job_one_node_probes_at_a_time(size: int) -> None:
    ring = [f"n{index}" for index in range(size)]
    times = sorted(
        begins_s(size, index) + turn * slot_s(size)
        for index in range(size)
        for turn in range(len(peers_of(ring, index)))
    )
    assert len(times) == size * size
    for earlier, later in itertools.pairwise(times):
        assert later - earlier == pytest.approx(policy.SLOT_S)


@pytest.mark.parametrize("size", [2, 8, 9, 33, 1024])
def test_a_round_is_over_before_the_next_begins(size: int) -> None:
    ring = [f"n{index}" for index in range(size)]
    ends_s = max(begins_s(size, index) + len(peers_of(ring, index)) * slot_s(size) for index in (0, size - 1))
    assert rest_s(size) >= policy.ROUND_REST_S and rest_s(size) > ends_s
    assert ends_s < policy.ANSWER_S


def test_every_link_is_probed_from_both_ends() -> None:
    ring = [f"n{index}" for index in range(21)]
    ways = {(ring[index], other) for index in range(21) for other in peers_of(ring, index)[1:]}
    assert ways == {(other, one) for one, other in ways}


def rounds(plan: ProbePlan, seconds: range, *, suspicious: bool) -> list[int]:
    """When a round is due; each that is due is asked for."""
    found = []
    for now_s in seconds:
        purpose = plan.due(float(now_s), PAIR, suspicious=suspicious)
        if purpose is not None:
            assert (purpose is Purpose.SUSPICION) == suspicious
            plan.asked(float(now_s), purpose)
            found.append(now_s)
    return found


def test_without_suspicion_there_is_one_round_to_compare_with() -> None:
    assert rounds(ProbePlan(), range(0, 20_000, 5), suspicious=False) == [0]


def test_under_suspicion_there_are_six_rounds_and_then_few() -> None:
    plan = ProbePlan()
    eager = [1000, 1015, 1030, 1045, 1060, 1075]
    assert rounds(plan, range(1000, 2000, 5), suspicious=True) == [*eager, 1375, 1675, 1975]


def test_a_suspicion_that_comes_and_goes_does_not_make_rounds_more_frequent() -> None:
    plan, asked = ProbePlan(), []
    for now_s in range(0, 3600, 5):
        purpose = plan.due(float(now_s), PAIR, suspicious=now_s // 5 % 2 == 0)
        if purpose is not None:
            plan.asked(float(now_s), purpose)
            asked.append(now_s)
    assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= policy.ROUND_REST_S
    assert len(asked) <= 1 + policy.EAGER_ROUNDS + 3600 / policy.LATER_REST_S


def test_a_suspicion_ends_when_nothing_speaks_for_it() -> None:
    plan = ProbePlan()
    plan.due(0.0, PAIR, suspicious=True)
    assert plan.suspected
    plan.due(policy.CALM_S - 1.0, PAIR, suspicious=False)
    assert plan.suspected
    plan.due(policy.CALM_S + 1.0, PAIR, suspicious=False)
    assert not plan.suspected


def test_other_nodes_need_another_reference() -> None:
    plan = ProbePlan()
    assert rounds(plan, range(0, 100, 5), suspicious=False) == [0]
    assert plan.due(100.0, ("a", "c"), suspicious=False) is Purpose.REFERENCE


@pytest.mark.parametrize("count", [0, 1, policy.NODES_MAX + 1])
def test_nothing_is_probed_without_links_or_with_too_many(count: int) -> None:
    nodes = tuple(f"n{index}" for index in range(count))
    assert ProbePlan().due(0.0, nodes, suspicious=True) is None
