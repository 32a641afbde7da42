"""The longest silence of a node that lived is known, how failures were noticed, and who was given up in
vain."""

from __future__ import annotations

import pytest

from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause
from controlplane.simulation.failures import Outage
from controlplane.simulation.world import JOB
from tests.analysis.proposals.played import SilentNodes, ran
from tests.core.membership.test_deaf_leader import BUSY, TIMEOUT_S, hear, led

HOUR_S = 3600.0


def test_the_longest_silence_of_each_node_that_lived_is_known() -> None:
    made = led("a", "b")
    hear(made, "ab", 5.0)
    hear(made, "a", 7.0)
    hear(made, "ab", 20.0)
    hear(made, "ab", 21.0)
    assert {name: made.state.nodes[name].listening.longest_s for name in "ab"} == {"a": 13.0, "b": 15.0}


def test_time_in_which_this_leader_did_not_listen_is_no_silence() -> None:
    made = led("a")
    hear(made, "a", 5.0)
    made.step(15.0, ev.LeaderDeaf(10.0, BUSY))
    hear(made, "a", 16.0)
    assert made.state.nodes["a"].listening.longest_s == pytest.approx(5.0)


def test_a_stream_that_broke_and_came_back_is_a_silence_and_a_new_launcher_is_none() -> None:
    made = led("a", "b")
    for name in "ab":
        made.step(1.0, ev.NodeBroken(name, 1, "reset"))
    made.step(9.0, ev.NodeJoined("a", 2, "la", "a", 8, 1, process_timeout_s=5.0))
    made.step(9.0, ev.NodeJoined("b", 2, "another", "b", 8, 1))
    known = {name: made.state.nodes[name].listening for name in "ab"}
    assert (known["a"].longest_s, known["b"].longest_s) == (9.0, 0.0)
    assert known["a"].process_timeout_s == 5.0


def test_each_failure_counts_once_by_its_cause_with_the_time_until_it_was_noticed() -> None:
    made = ran(Outage(1, HOUR_S, 2 * HOUR_S, "GPU"), Outage(2, 3 * HOUR_S, 3 * HOUR_S, "exit"))
    known = made.cluster.state.jobs[JOB].recovery.noticing
    assert known.times == {Cause.NODE_LOST: 1, Cause.SIGNALED: 1}, "the return of the node is no failure"
    assert known.after_s[Cause.NODE_LOST] == pytest.approx(60.0, abs=1.0)
    assert known.mistaken_s == [], "a node that comes back with a new launcher was dead"


def test_a_node_that_was_given_up_and_speaks_again_had_lived() -> None:
    made = SilentNodes()
    made.silent(1, 2 * HOUR_S, 90.0)
    made.run()
    known = made.cluster.state.jobs[JOB].recovery.noticing
    assert known.times[Cause.NODE_LOST] == 1
    assert known.mistaken_s == [pytest.approx(90.0, abs=1.0)]


def test_a_node_without_ranks_that_was_given_up_counts_for_nobody() -> None:
    made = led("a", "b", "c", "d", "e")
    hear(made, "abcd", TIMEOUT_S)
    made.step(TIMEOUT_S + 0.1, ev.Tick())
    hear(made, "abcde", TIMEOUT_S + 5)
    node = made.state.nodes["e"]
    assert node.state == "up" and node.listening.given_up == () and node.listening.longest_s == 0.0
