"""Links are suspected when communication takes longer than work explains, and named only while it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.links import policy
from controlplane.analysis.links.measures import LinkMatrix, LinkMeasures
from controlplane.analysis.live.watch import JobWatch
from controlplane.core.records.diagnosis import LinkProbe, ProbeEnd, Thresholds
from tests.analysis.live.jobs import STEPS, job, kinds, opened, watched

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import JobWindow, RankWindow

RANKS = 16  # on four nodes
NODES = ("n0", "n1", "n2", "n3")
ONSET = 15


def slower(extra_s: float, onset: int = ONSET) -> list[JobWindow]:
    """A job in which communication takes so much longer per step on all ranks, from `onset` on."""

    def change(_rank: int, window: int, row: RankWindow) -> RankWindow:
        if window < onset:
            return row
        return row._replace(
            communication_s=row.communication_s + extra_s * STEPS, wall_s=row.wall_s + extra_s * STEPS
        )

    return job(RANKS, 30, change=change)


def matrix(slow_node: str = "", factor: float = 5.0) -> LinkMatrix:
    """What four calm nodes measured; one of them may have a slow network."""
    measures, calm = LinkMeasures(), ProbeEnd(1e-4, 1e-3, 1e-5)
    for turn in range(policy.MEASURES_LEAST):
        for one, other in (*permutations(NODES, 2), *((node, node) for node in NODES)):
            slow = slow_node in (one, other) and one != other
            speed = 2e8 / (factor if slow else 1.0)
            probe = LinkProbe(other, 0.0004, speed, 100, "", 0.01, calm, calm)
            measures.take(one, float(turn), [probe], suspected=True)
    return measures.matrix(3.0, NODES, {})


def probed(windows: list[JobWindow], links: LinkMatrix) -> list[JobWindow]:
    return [replace(window, links=links) for window in windows]


def test_a_job_that_communicates_as_usual_has_no_suspected_link() -> None:
    assert all(not each.suspicion for each in watched(slower(0.0)))


def test_links_are_suspected_when_communication_grows_on_all_ranks() -> None:
    diagnoses = watched(slower(0.3))
    assert not any(each.suspicion for each in diagnoses[:ONSET])
    assert "was usual" in diagnoses[-1].suspicion
    assert (diagnoses[-1].links_unknown, diagnoses[-1].links_code) == ("not probed yet", "not_probed")


def test_a_slow_rank_makes_no_link_suspicious() -> None:
    windows = job(RANKS, 30, lambda rank, window: 1.6 if rank == 5 and window >= ONSET else 1.0)
    assert all(not each.suspicion for each in watched(windows))


def test_a_little_more_communication_is_not_worth_a_probe() -> None:
    assert all(not each.suspicion for each in watched(slower(0.04)))


def test_links_are_suspected_when_communication_takes_too_much_of_each_step_from_the_beginning() -> None:
    diagnoses = watched(slower(1.0, onset=0))
    assert "is a bottleneck" in diagnoses[-1].suspicion
    quiet = watched(slower(1.0, onset=0), JobWatch(Thresholds(communication=0.9)))
    assert not quiet[-1].suspicion


def test_a_slow_network_of_a_node_is_named_with_its_cost() -> None:
    findings = opened(watched(probed(slower(0.3), matrix("n2"))))
    (finding,) = (each for each in findings if each.kind == "slow_node_network")
    assert finding.subject == "network of node n2" and dict(finding.place)["node"] == "n2"
    evidence = dict(finding.evidence)
    assert evidence["link_ratio"] == pytest.approx(5.0)
    assert evidence["excess_s_per_step"] == pytest.approx(0.3, rel=0.2)
    gain = finding.recommendations[0].gain_ratio
    assert gain is not None and gain == pytest.approx(0.3 / 1.4, rel=0.2)
    assert "job_slowed" not in [each.kind for each in findings]  # the link explains it


def test_what_a_link_costs_is_unknown_when_the_job_never_ran_without_it() -> None:
    findings = opened(watched(probed(slower(1.0, onset=0), matrix("n2"))))
    (finding,) = (each for each in findings if each.kind == "slow_node_network")
    assert "not known" in finding.reason and finding.recommendations[0].gain_ratio is None


def test_a_slow_link_that_holds_up_nobody_is_no_finding() -> None:
    assert opened(watched(probed(slower(0.0), matrix("n2")))) == []


def test_probes_that_show_nothing_accuse_nobody_and_say_that_it_is_unknown() -> None:
    diagnoses = watched(probed(slower(0.3), matrix()))
    assert kinds(opened(diagnoses)) == [("job_slowed", "")]
    assert "none carries much less" in diagnoses[-1].links_unknown
    assert diagnoses[-1].links_code == "alike"


def test_a_link_of_two_nodes_names_no_node() -> None:
    links = matrix()
    ways = dict(links.ways)
    for way in (("n0", "n3"), ("n3", "n0")):
        ways[way] = ways[way]._replace(bytes_per_s=ways[way].bytes_per_s / 6.0)
    findings = opened(watched(probed(slower(0.3), replace(links, ways=ways))))
    (finding,) = (each for each in findings if each.kind == "slow_link")
    place = dict(finding.place)
    assert place["node"] is None and (place["first_node"], place["second_node"]) == ("n0", "n3")
    assert "not known" in finding.recommendation
