"""Slow links, nodes' networks and networks are named, and nobody else, whatever is missing or absurd."""

from __future__ import annotations

import dataclasses
import math
from itertools import permutations

import pytest

from benchmarks.diagnosis.matrices import KINDS
from benchmarks.diagnosis.matrix_scores import score
from controlplane.analysis.links import policy
from controlplane.analysis.links.judging import LinkVerdict, judge
from controlplane.analysis.links.measures import LinkMatrix, LinkMeasures, Way
from controlplane.analysis.links.unknown import Unknown
from controlplane.core.records.diagnosis import LinkProbe, ProbeEnd

SPEED, RTT_S = 2e8, 0.0004
NODES = ("a", "b", "c", "d")
CALM = ProbeEnd(waited_s=1e-4, ran_s=2e-3, rtt_waited_s=5e-5)
BLOCK_S = 0.01


def seen(
    far: str,
    rtt_s: float = RTT_S,
    speed: float = SPEED,
    here: ProbeEnd | None = CALM,
    there: ProbeEnd | None = CALM,
) -> LinkProbe:
    """A probe of which both ends were calm, unless something else is given."""
    return LinkProbe(far, rtt_s, speed, 1 << 20, "", BLOCK_S, here, there)


def measured(
    slow: dict[Way, float],
    nodes: tuple[str, ...] = NODES,
    *,
    rounds: int = policy.MEASURES_LEAST,
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
            measures.take(one, 10.0 * turn, [probe or seen(other, speed=speed)], suspected=turn >= 0)
    return measures.matrix(10.0 * rounds, nodes, domains or {})


def around(node: str, factor: float, nodes: tuple[str, ...] = NODES) -> dict[Way, float]:
    """All links of a node, slower by this factor."""
    return {way: factor for way in permutations(nodes, 2) if node in way}


def only(matrix: LinkMatrix) -> LinkVerdict:
    """The one verdict there is."""
    return only_of(judge(matrix).verdicts)


def only_of(verdicts: tuple[LinkVerdict, ...]) -> LinkVerdict:
    """The one that there is."""
    (verdict,) = verdicts
    return verdict


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planted_is_named(kind: str) -> None:
    found = score(kind, 7000, 20)
    print(f"{kind}: {found}")
    assert found.named >= 0.9 * found.planted
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


def test_three_nodes_have_too_few_links_to_say_which_is_slow() -> None:
    found = judge(measured(around("b", 3.0, NODES[:3]), NODES[:3]))
    assert not found.verdicts and found.code is Unknown.TOO_FEW_LINKS
    assert "6 directions have fewer than 5 others of their kind" in found.unknown


def test_a_network_that_is_slow_everywhere_is_told_by_what_it_was() -> None:
    everything = dict.fromkeys(permutations(NODES, 2), 5.0)
    assert only(measured(everything, reference=True)).kind == "slow_network"
    unknown = judge(measured(everything))
    assert not unknown.verdicts and unknown.code is Unknown.ALIKE
    assert "none carries much less than the others" in unknown.unknown


def test_one_link_of_six_does_not_speak_for_the_network() -> None:
    """The other nodes are busy and send slowly even to themselves, so only one link can be judged."""
    slow = dict.fromkeys(permutations(NODES, 2), 5.0) | {("c", "c"): 9.0, ("d", "d"): 9.0}
    found = judge(measured(slow, reference=True))
    assert not found.verdicts and found.code is Unknown.SLOW_ALONE
    assert "10 directions end at a node that is slow in sending to itself" in found.unknown


def test_two_nodes_have_one_link_which_is_judged_by_its_own_past_alone() -> None:
    pair = NODES[:2]
    both = dict.fromkeys(permutations(pair, 2), 5.0)
    verdict = only(measured(both, pair, reference=True))
    assert (verdict.kind, verdict.nodes) == ("slow_link", pair)
    assert verdict.confidence == pytest.approx(policy.CONFIDENCE * policy.UNCERTAIN)
    unknown = judge(measured(both, pair))
    assert not unknown.verdicts and unknown.code is Unknown.NO_REFERENCE
    assert "nothing to compare it with" in unknown.unknown
    healthy = judge(measured({}, pair, reference=True))
    assert healthy.code is Unknown.ALIKE and "much less than before" in healthy.unknown


def test_one_node_has_no_link() -> None:
    found = judge(measured({}, NODES[:1]))
    assert found.verdicts == () and found.code is Unknown.NOT_PROBED


def test_links_that_are_all_well_name_nobody() -> None:
    found = judge(measured({}, reference=True))
    assert not found.verdicts and found.judged == 6 and found.code is Unknown.ALIKE
    assert found.unknown.startswith("6 links were measured in 3 rounds or more")


@pytest.mark.parametrize("rounds", range(1, policy.MEASURES_LEAST))
def test_fewer_than_three_rounds_accuse_nobody(rounds: int) -> None:
    found = judge(measured(around("b", 3.0), rounds=rounds))
    assert not found.verdicts and found.code is Unknown.TOO_FEW_ROUNDS
    assert "12 directions were measured in fewer than 3 rounds" in found.unknown


def test_a_node_that_is_slow_alone_is_not_accused() -> None:
    found = judge(measured({**around("b", 3.0), ("b", "b"): 2.0}))
    assert not found.verdicts and found.code is Unknown.TOO_FEW_LINKS  # three links are left
    assert "6 directions end at a node that is slow in sending to itself" in found.unknown
    assert "node b, 2.0 times" in found.unknown


WAITED = dataclasses.replace(CALM, waited_s=1.1 * policy.WAITED_MAX * BLOCK_S)
BUSY_ENDS = {
    "it waited for a CPU in the block": WAITED,
    "it waited for a CPU in the round trips": dataclasses.replace(CALM, rtt_waited_s=2e-3),
    "others of its node waited for a CPU": dataclasses.replace(CALM, pressure=0.9),
}


@pytest.mark.parametrize("busy", BUSY_ENDS.values(), ids=list(BUSY_ENDS))
@pytest.mark.parametrize("far", [False, True])
def test_a_link_is_not_judged_by_probes_of_which_an_end_was_busy(busy: ProbeEnd, far: bool) -> None:
    """The node is busy on its links only: alone it is as fast as the others."""
    ends = (CALM, busy) if far else (busy, CALM)
    late = {
        way: seen(way[1], speed=SPEED / 3.0, here=ends[way[0] != "b"], there=ends[way[0] == "b"])
        for way in around("b", 3.0)
    }
    found = judge(measured({}, instead=late))
    assert not found.verdicts and found.code in (Unknown.CROWDED, Unknown.TOO_FEW_LINKS)
    assert "6 directions were measured only while a node was busy" in found.unknown


def test_nobody_is_accused_when_all_nodes_are_busy() -> None:
    late = {way: seen(way[1], here=WAITED, there=WAITED) for way in permutations(NODES, 2)}
    late |= {way: seen(way[1], speed=SPEED / 9, here=WAITED, there=WAITED) for way in around("b", 9.0)}
    found = judge(measured({}, instead=late))
    assert not found.verdicts and found.code is Unknown.CROWDED
    assert "12 directions were measured only while a node was busy" in found.unknown
    assert "the agent waited for a CPU for 22% of a block's time on node a" in found.unknown


@pytest.mark.parametrize("end", [None, dataclasses.replace(CALM, waited_s=math.nan), ProbeEnd(-1.0)])
def test_a_probe_that_does_not_say_how_long_agents_waited_is_no_measurement(end: ProbeEnd | None) -> None:
    """Agents of older versions, and kernels that do not count."""
    late = {way: seen(way[1], speed=SPEED / 9, there=end) for way in around("b", 9.0)}
    found = judge(measured({}, instead=late))
    assert not found.verdicts
    assert "6 directions were measured, and whether their nodes were busy is not known" in found.unknown
    everything = {way: seen(way[1], there=end) for way in permutations(NODES, 2)}
    assert judge(measured({}, instead=everything)).code is Unknown.CALM_NOT_KNOWN


def test_a_node_that_has_not_probed_itself_is_not_accused() -> None:
    alone = {("b", "b"): LinkProbe("b", reason="no answer within 2 s")}
    found = judge(measured(around("b", 3.0), instead=alone))
    assert not found.verdicts and "node b alone: no answer within 2 s" in found.unknown


def test_a_link_that_looks_slow_because_an_agent_computes_is_not_accused() -> None:
    computes = dataclasses.replace(CALM, ran_s=0.9 * BLOCK_S)
    late = {way: seen(way[1], speed=SPEED / 3.0, here=computes) for way in (("a", "c"), ("c", "a"))}
    found = judge(measured({}, instead=late))
    assert not found.verdicts and "an agent computed or waited for a CPU for 91% of it" in found.unknown
    one_way = judge(measured({("c", "a"): 3.0}, instead={("a", "c"): late["a", "c"]}))
    assert only_of(one_way.verdicts).nodes == ("a", "c")  # the other way says it


def test_two_pairs_of_six_that_are_disturbed_leave_too_few_to_compare_with() -> None:
    late = {way: seen(way[1], here=WAITED) for way in (("a", "b"), ("b", "a"))}
    found = judge(measured({("a", "c"): 4.0, ("c", "a"): 4.0}, instead=late))
    assert not found.verdicts and found.code is Unknown.TOO_FEW_LINKS


def test_links_between_racks_are_compared_with_each_other() -> None:
    nodes = (*NODES, "e", "f")
    racks = {node: "r1" if node in "abc" else "r2" for node in nodes}
    between = {way: 3.0 for way in permutations(nodes, 2) if racks[way[0]] != racks[way[1]]}
    assert not judge(measured(between, nodes, domains=racks)).verdicts
    worse = {**between, ("a", "d"): 9.0, ("d", "a"): 9.0}
    assert only(measured(worse, nodes, domains=racks)).nodes == ("a", "d")


@pytest.mark.parametrize(
    "probe",
    [
        seen("b", math.nan, SPEED / 9),
        seen("b", RTT_S, math.nan),
        seen("b", RTT_S, math.inf),
        seen("b", -1.0, SPEED / 9),
        seen("b", 0.0, 0.0),
        seen("b", 1e6, SPEED / 9),
        seen("b", RTT_S, 1e-9),
        dataclasses.replace(seen("b", RTT_S, SPEED / 9), block_s=0.0),
        dataclasses.replace(seen("b", RTT_S, SPEED / 9), block_s=math.nan),
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
    for turn in range(policy.MEASURES_LEAST):
        for one, other in (*permutations(NODES, 2), *((node, node) for node in NODES)):
            speed = SPEED / (9.0 if one != other and "b" in (one, other) else 1.0)
            measures.take(one, turn, [seen(other, speed=speed)], suspected=True)
    assert judge(measures.matrix(3.0, NODES, {})).verdicts
    assert not judge(measures.matrix(3.0 + policy.STALE_S, NODES, {})).verdicts
    assert not judge(measures.matrix(-1.0, NODES, {})).verdicts  # from a clock that was ahead


def test_nodes_that_left_and_suspicions_that_are_over_are_forgotten() -> None:
    measures = LinkMeasures()
    for one, other in permutations(NODES, 2):
        measures.take(one, 0.0, [seen(other)], suspected=True)
    measures.keep_nodes(("a", "b"))
    assert set(measures.matrix(1.0, NODES, {}).ways) == {("a", "b"), ("b", "a")}
    measures.forget_suspicion()
    assert measures.matrix(1.0, NODES, {}).ways == {}


def test_a_long_round_trip_is_a_slow_link_too() -> None:
    late = {way: seen(way[1], 0.05) for way in (("a", "c"), ("c", "a"))}
    verdict = only(measured({}, instead=late))
    assert verdict.by_rtt and verdict.nodes == ("a", "c") and verdict.ratio == pytest.approx(0.05 / RTT_S)
    a_little = {way: seen(way[1], 0.004) for way in (("a", "c"), ("c", "a"))}
    assert not judge(measured({}, instead=a_little)).verdicts  # ten times as long, but not worth a word
