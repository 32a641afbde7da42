"""Slow links, nodes' networks and networks are named, and nobody else, whatever is missing or absurd."""

from __future__ import annotations

import math
from itertools import permutations

import pytest

from benchmarks.diagnosis.matrices import KINDS, score
from controlplane.analysis.links import policy
from controlplane.analysis.links.judging import LinkVerdict, judge
from controlplane.analysis.links.measures import LinkMatrix, LinkMeasures, Way
from controlplane.core.records.diagnosis import LinkProbe

SPEED, RTT_S = 2e8, 0.0004
NODES = ("a", "b", "c", "d")


def measured(
    slow: dict[Way, float],
    nodes: tuple[str, ...] = NODES,
    *,
    rounds: int = 2,
    reference: bool = False,
    instead: dict[Way, LinkProbe] | None = None,
    domains: dict[str, str] | None = None,
) -> LinkMatrix:
    """A matrix in which some ways are so many times slower. `instead`: what is answered for some ways."""
    measures = LinkMeasures()
    ways = [*permutations(nodes, 2), *((node, node) for node in nodes)]
    for turn in range(-1 if reference else 0, rounds):
        for one, other in ways:
            speed = SPEED / (slow.get((one, other), 1.0) if turn >= 0 else 1.0)
            probe = (instead or {}).get((one, other)) if turn >= 0 else None
            measures.take(one, 10.0 * turn, [probe or LinkProbe(other, RTT_S, speed)], suspected=turn >= 0)
    return measures.matrix(10.0 * rounds, nodes, domains or {})


def around(node: str, factor: float, nodes: tuple[str, ...] = NODES) -> dict[Way, float]:
    """All links of a node, slower by this factor."""
    return {way: factor for way in permutations(nodes, 2) if node in way}


def only(matrix: LinkMatrix) -> LinkVerdict:
    """The one verdict there is."""
    (verdict,) = judge(matrix).verdicts
    return verdict


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planted_is_named(kind: str) -> None:
    found = score(kind, 7000, 20)
    print(f"{kind}: {found}")
    assert found.named >= 0.95 * found.planted
    assert found.wrong <= (1 if kind == "noise" else 0)  # of 20 jobs in which every probe is off by 40 %


def test_a_link_of_two_nodes_blames_neither() -> None:
    verdict = only(measured({("a", "c"): 4.0, ("c", "a"): 4.0}))
    assert (verdict.kind, verdict.nodes, verdict.one_way) == ("slow_link", ("a", "c"), None)
    assert verdict.ratio == pytest.approx(4.0) and (verdict.slow, verdict.judged) == (1, 6)


def test_a_link_that_is_slow_one_way_says_which() -> None:
    verdict = only(measured({("c", "a"): 4.0}))
    assert (verdict.kind, verdict.nodes, verdict.one_way) == ("slow_link", ("a", "c"), ("c", "a"))


def test_a_node_whose_links_are_all_slow_is_named_and_its_peers_are_not() -> None:
    verdict = only(measured(around("b", 3.0)))
    assert (verdict.kind, verdict.nodes, verdict.slow) == ("slow_node_network", ("b",), 3)


def test_among_three_nodes_the_one_with_two_slow_links_is_named_with_less_confidence() -> None:
    verdict = only(measured(around("b", 3.0, NODES[:3]), NODES[:3]))
    assert (verdict.kind, verdict.nodes) == ("slow_node_network", ("b",))
    assert verdict.confidence == pytest.approx(policy.CONFIDENCE * policy.FEW)


def test_a_network_that_is_slow_everywhere_is_told_by_what_it_was() -> None:
    everything = dict.fromkeys(permutations(NODES, 2), 5.0)
    assert only(measured(everything, reference=True)).kind == "slow_network"
    unknown = judge(measured(everything))
    assert not unknown.verdicts and "none carries much less than the others" in unknown.unknown


def test_one_link_of_six_does_not_speak_for_the_network() -> None:
    """The other nodes are busy and send slowly even to themselves, so only one link can be judged."""
    slow = dict.fromkeys(permutations(NODES, 2), 5.0) | {("c", "c"): 9.0, ("d", "d"): 9.0}
    found = judge(measured(slow, reference=True))
    assert not found.verdicts and "too busy to judge their links" in found.unknown


def test_two_nodes_have_one_link_which_is_judged_by_its_own_past_alone() -> None:
    pair = NODES[:2]
    both = dict.fromkeys(permutations(pair, 2), 5.0)
    verdict = only(measured(both, pair, reference=True))
    assert (verdict.kind, verdict.nodes) == ("slow_link", pair)
    assert verdict.confidence == pytest.approx(policy.CONFIDENCE * policy.UNCERTAIN)
    unknown = judge(measured(both, pair))
    assert not unknown.verdicts and "nothing to compare it with" in unknown.unknown


def test_one_node_has_no_link() -> None:
    assert judge(measured({}, NODES[:1])).verdicts == ()


def test_links_that_are_all_well_name_nobody() -> None:
    found = judge(measured({}, reference=True))
    assert not found.verdicts and "6 links were probed" in found.unknown


def test_one_probe_accuses_nobody() -> None:
    found = judge(measured(around("b", 3.0), rounds=1))
    assert not found.verdicts and "measured often enough" in found.unknown


def test_a_busy_node_is_not_accused() -> None:
    found = judge(measured({**around("b", 3.0), ("b", "b"): 2.0}))
    assert not found.verdicts and "too busy" in found.unknown and "b (2.0 times)" in found.unknown


def test_links_between_racks_are_compared_with_each_other() -> None:
    racks = {node: "r1" if node in "ab" else "r2" for node in NODES}
    between = {way: 3.0 for way in permutations(NODES, 2) if racks[way[0]] != racks[way[1]]}
    assert not judge(measured(between, domains=racks)).verdicts
    worse = {**between, ("a", "c"): 9.0, ("c", "a"): 9.0}
    assert only(measured(worse, domains=racks)).nodes == ("a", "c")


@pytest.mark.parametrize(
    "probe",
    [
        LinkProbe("b", math.nan, SPEED / 9),
        LinkProbe("b", RTT_S, math.nan),
        LinkProbe("b", RTT_S, math.inf),
        LinkProbe("b", -1.0, SPEED / 9),
        LinkProbe("b", 0.0, 0.0),
        LinkProbe("b", 1e6, SPEED / 9),
        LinkProbe("b", RTT_S, 1e-9),
        LinkProbe("b", reason="no answer within 2 s"),
    ],
    ids=str,
)
def test_what_is_no_measurement_speaks_against_nobody(probe: LinkProbe) -> None:
    assert not judge(measured({}, instead={("a", "b"): probe})).verdicts
    other_way = measured({("b", "a"): 4.0}, instead={("a", "b"): probe})
    assert only(other_way).nodes == ("a", "b")  # what the other end measured still counts


def test_a_node_that_nobody_reaches_is_not_called_slow() -> None:
    lost = {way: LinkProbe(way[1], reason="refused") for way in permutations(NODES, 2) if "d" in way}
    assert not judge(measured({}, instead=lost)).verdicts
    everything = {way: LinkProbe(way[1], reason="refused") for way in permutations(NODES, 2)}
    assert "refused" in judge(measured({}, instead=everything)).unknown


def test_stale_measurements_are_none() -> None:
    measures = LinkMeasures()
    for turn in range(2):
        for one, other in permutations(NODES, 2):
            speed = SPEED / (9.0 if "b" in (one, other) else 1.0)
            measures.take(one, turn, [LinkProbe(other, RTT_S, speed)], suspected=True)
    assert judge(measures.matrix(2.0, NODES, {})).verdicts
    assert not judge(measures.matrix(2.0 + policy.STALE_S, NODES, {})).verdicts
    assert not judge(measures.matrix(-1.0, NODES, {})).verdicts  # from a clock that was ahead


def test_nodes_that_left_and_suspicions_that_are_over_are_forgotten() -> None:
    measures = LinkMeasures()
    for one, other in permutations(NODES, 2):
        measures.take(one, 0.0, [LinkProbe(other, RTT_S, SPEED)], suspected=True)
    measures.keep_nodes(("a", "b"))
    assert set(measures.matrix(1.0, NODES, {}).ways) == {("a", "b"), ("b", "a")}
    measures.forget_suspicion()
    assert measures.matrix(1.0, NODES, {}).ways == {}


def test_a_long_round_trip_is_a_slow_link_too() -> None:
    late = {way: LinkProbe(way[1], 0.05, SPEED) for way in (("a", "c"), ("c", "a"))}
    verdict = only(measured({}, instead=late))
    assert verdict.by_rtt and verdict.nodes == ("a", "c") and verdict.ratio == pytest.approx(0.05 / RTT_S)
    a_little = {way: LinkProbe(way[1], 0.004, SPEED) for way in (("a", "c"), ("c", "a"))}
    assert not judge(measured({}, instead=a_little)).verdicts  # ten times as long, but not worth a word
