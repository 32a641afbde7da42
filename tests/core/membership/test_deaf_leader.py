"""A leader that did not listen for a while judges no node for having been silent then."""

from __future__ import annotations

import pytest

from controlplane.core.cluster import Cluster
from controlplane.core.records import events as ev

TIMEOUT_S = Cluster().settings.node_timeout_s
BUSY = "it was busy"


def led(*joined: str) -> Cluster:
    """A new leader that knows the nodes a to e; these have joined it."""
    made = Cluster()
    made.step(0.0, ev.Elected(1, nodes=tuple("abcde")))
    for name in joined:
        made.step(0.0, ev.NodeJoined(name, 1, f"l{name}", name, 8, 1))
    return made


def lost(made: Cluster) -> str:
    return "".join(name for name, node in made.state.nodes.items() if node.state == "lost")


def hear(made: Cluster, names: str, now: float) -> None:
    made.step(now, ev.NodesHeard(tuple((name, 1) for name in names)))


@pytest.mark.parametrize("newcomers", [False, True])
def test_nobody_is_lost_for_time_in_which_nobody_was_heard(newcomers: bool) -> None:
    made = led("a", "b", "c", "d")
    hear(made, "abcd", TIMEOUT_S - 5)
    made.step(TIMEOUT_S - 1, ev.LeaderDeaf(10.0, BUSY, newcomers))
    hear(made, "abcd", TIMEOUT_S)
    made.step(TIMEOUT_S + 1, ev.Tick())
    assert lost(made) == "", "e has had less than its whole timeout"
    made.step(TIMEOUT_S + 10.1, ev.Tick())
    assert lost(made) == "e"


def test_those_with_a_stream_are_not_excused_because_others_wait_for_one() -> None:
    made = led("a", "b", "c", "d", "e")
    hear(made, "abcd", TIMEOUT_S - 5)
    made.step(TIMEOUT_S - 1, ev.LeaderDeaf(10.0, BUSY, newcomers=True))
    made.step(TIMEOUT_S + 0.1, ev.Tick())
    assert lost(made) == "e"


def test_a_node_whose_stream_broke_is_a_newcomer() -> None:
    made = led("a", "b", "c", "d", "e")
    made.step(1.0, ev.NodeBroken("e", 1, "the stream ended"))
    hear(made, "abcd", 5.0)
    for second in range(5, 25):
        made.step(second + 1.0, ev.LeaderDeaf(1.0, BUSY, newcomers=True))
        hear(made, "abcd", second + 1.0)
    made.step(TIMEOUT_S + 0.1, ev.Tick())
    assert lost(made) == ""
    hear(made, "abcd", TIMEOUT_S + 19)
    made.step(TIMEOUT_S + 20.1, ev.Tick())
    assert lost(made) == "e"


def test_more_than_the_silence_itself_is_not_excused() -> None:
    made = led("a", "b", "c", "d", "e")
    made.step(3.0, ev.LeaderDeaf(100.0, BUSY))
    hear(made, "abcd", 30.0)
    made.step(TIMEOUT_S + 3.1, ev.Tick())
    assert lost(made) == "e"


def test_a_leader_that_is_away_again_and_again_loses_who_is_gone_all_the_same() -> None:
    made = led("a", "b", "c", "d", "e")
    now = 0.0
    while lost(made) == "" and now < 10 * TIMEOUT_S:
        now += 2.0
        made.step(now, ev.LeaderDeaf(2.0, BUSY))
        hear(made, "abcd", now)
    assert lost(made) == "e" and now <= 2 * TIMEOUT_S + 2.0


def guarded() -> Cluster:
    """A leader whose 20 nodes were all silent for their timeout, so that it asks each directly."""
    made = Cluster()
    made.step(0.0, ev.Elected(1))
    for number in range(20):
        made.step(0.0, ev.NodeJoined(f"n{number:02}", 1, "l", "h", 8, 1, peer="h:1"))
    made.step(TIMEOUT_S, ev.Tick())
    assert made.state.guard is not None and len(made.state.guard.waits) == 20
    return made


def test_answers_are_waited_for_longer_by_the_time_in_which_nobody_was_heard() -> None:
    """Of a minute in which it was busy nearly all the time, the answers come at the end."""
    made, brake_s = guarded(), Cluster().settings.brake_max_s
    for second in range(2, int(brake_s) + 10, 2):
        made.step(TIMEOUT_S + second, ev.LeaderDeaf(1.9, BUSY))
        made.step(TIMEOUT_S + second, ev.Tick())
    assert lost(made) == ""
    for number in range(1, 20):
        made.step(TIMEOUT_S + brake_s + 10, ev.ProbeAnswered(f"n{number:02}", 1, answered=True))
    made.step(TIMEOUT_S + 3 * brake_s, ev.Tick())
    assert lost(made) == "n00"


def test_a_leader_that_is_away_all_the_time_waits_twice_as_long_for_answers_and_no_longer() -> None:
    made, brake_s = guarded(), Cluster().settings.brake_max_s
    now = TIMEOUT_S
    while not lost(made) and now < TIMEOUT_S + 10 * brake_s:
        now += 2.0
        made.step(now, ev.LeaderDeaf(2.0, BUSY))
        made.step(now, ev.Tick())
    assert TIMEOUT_S + 2 * brake_s <= now <= TIMEOUT_S + 2 * brake_s + 2.0


def test_what_was_before_the_guard_is_no_excuse() -> None:
    made, brake_s = guarded(), Cluster().settings.brake_max_s
    made.step(TIMEOUT_S + 1.0, ev.LeaderDeaf(20.0, BUSY))
    made.step(TIMEOUT_S + brake_s + 0.5, ev.Tick())
    assert not lost(made)
    made.step(TIMEOUT_S + brake_s + 1.0, ev.Tick())
    assert lost(made)
