"""Nodes that will not do any more: which are to be replaced, which never, and which are forgotten."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.membership import replacement
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import LemonRecord, NodePlace
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

AWAY = "ReplaceNode "


def replacing_on(stage: Play, **settings: Any) -> Play:
    state = stage.cluster.state
    wanted = {"replace_nodes": True, "replace_after_s": 60.0, "node_timeout_s": 30.0, **settings}
    state.settings = dataclasses.replace(state.settings, **wanted)
    replacement.begin(state)
    return stage


def asked(lines: list[str]) -> list[str]:
    return [line.removeprefix(AWAY) for line in lines if line.startswith(AWAY)]


def live(stage: Play, seconds: int, *dead: str) -> list[str]:
    """Time passes while every node but these beats."""
    return stage.do(f"live {seconds} {' '.join(dead)}")


def answer(stage: Play, ok: bool, reason: str = "pod deleted") -> list[str]:
    effect = stage.last[fx.ReplaceNode]
    stage.lines = []
    stage.feed(ev.NodeReplaced(effect.node, effect.incarnation, ok, reason))
    return stage.lines


def with_idle(**settings: Any) -> Play:
    """A job on a and b, and c that waits."""
    stage = replacing_on(running(), **settings)
    stage.do("hello c")
    stage.do("stored")
    return stage


def test_a_lost_node_is_replaced_after_a_while_and_forgotten() -> None:
    stage = with_idle()
    stage.do("lose c")
    assert asked(live(stage, 85, "c")) == []
    (told,) = asked(live(stage, 15, "c"))
    assert told.startswith("c gone (it is lost")
    assert asked(live(stage, 120, "c")) == []  # asked for once, not at every look
    assert "Note node_replaced c: pod deleted" in answer(stage, ok=True)
    lines = live(stage, 10, "c")
    assert [line for line in lines if line.startswith("Note node_forgotten c")]
    assert "c" not in stage.cluster.state.nodes
    stage.do("stored")
    assert stage.last[fx.ForgetNode].node == "c"
    stage.do("hello c-fresh")
    assert stage.cluster.state.nodes["c-fresh"].up


def test_a_failed_replacement_is_told_and_tried_again() -> None:
    stage = with_idle(replace_retry_s=100.0)
    stage.do("lose c")
    assert asked(live(stage, 100, "c"))
    lines = answer(stage, ok=False, reason="the API says 403: pods is forbidden")
    assert "Note node_replace_failed c: the API says 403: pods is forbidden" in lines
    lines = live(stage, 60, "c")
    assert [
        line for line in lines if line.startswith("Alert") and "node_unreplaced" in line and "403" in line
    ]
    assert asked(live(stage, 60, "c"))
    answer(stage, ok=True)
    assert [line for line in live(stage, 5, "c") if "node_unreplaced" in line and "resolved" in line]


def test_a_node_with_a_bad_device_is_replaced_once_no_rank_sits_there() -> None:
    stage = replacing_on(running())
    stage.do("device a gpu0 bad")
    stage.do("report j.1000002 starting")
    stage.cluster.state.nodes["a"].excluded["device0"] = "ranks died on it 3 times"
    assert asked(live(stage, 200)) == []  # rank 0 has no other place than beside it, and sits there
    stage.do("stop enough")
    stage.do("stored")
    stage.do("all exited cause=signaled")
    stage.do("stored")
    (told,) = asked(live(stage, 70))
    assert told.startswith("a (its devices will not do: device0")


def test_a_quarantined_node_is_replaced() -> None:
    stage = with_idle()
    state = stage.cluster.state
    state.nodes["c"].failure_history = LemonRecord(
        "c", 9.0, state.wall, state.wall + 10_000.0, "quarantined, score 9.0"
    )
    assert asked(live(stage, 70)) == ["c (quarantined, score 9.0)"]


@pytest.mark.parametrize("mark", ["cordon c", "drain c deadline=5", "leaving c"])
def test_what_people_have_marked_is_theirs(mark: str) -> None:
    stage = with_idle()
    stage.do(mark)
    stage.do("stored")
    stage.do("lose c")
    assert asked(live(stage, 300, "c")) == []


def test_a_bad_device_that_is_well_again_saves_its_node() -> None:
    stage = with_idle()
    stage.do("device c gpu0 bad")
    live(stage, 40)
    stage.do("device c gpu0 well")
    live(stage, 10)
    stage.do("device c gpu0 bad")
    assert asked(live(stage, 50)) == []  # the time counts anew
    assert asked(live(stage, 20)) == ["c (its devices will not do: gpu0: 2 uncorrected memory errors)"]


def test_a_mass_loss_replaces_nobody() -> None:
    stage = replacing_on(running(nodes="ab"), replace_after_s=0.0, brake_max_s=300.0)
    for name in "cdefgh":
        stage.do(f"hello {name}")
    for name in "cdef":
        stage.do(f"lose {name}")
    lines = live(stage, 120, *"cdef")
    assert asked(lines) == []
    assert stage.cluster.state.guard is not None


def test_no_more_than_so_many_within_an_hour() -> None:
    stage = replacing_on(running(), replace_per_hour=2, mass_loss_ratio=1.0, replace_retry_s=1e6)
    for name in "cdef":
        stage.do(f"hello {name}")
    for name in "cdef":
        stage.do(f"lose {name}")
    lines = live(stage, 400, *"cdef")
    assert len(asked(lines)) == 2
    held = [line for line in lines if line.startswith("Note node_replace_held")]
    assert len(held) == 2 and "2 nodes were replaced within the last hour" in held[0]
    assert len(asked(live(stage, 3600, *"cdef"))) == 2


def test_nothing_of_it_unless_it_is_wanted() -> None:
    stage = replacing_on(running(), replace_nodes=False)
    stage.do("hello c")
    stage.do("lose c")
    lines = live(stage, 500, "c")
    assert asked(lines) == []
    assert stage.cluster.state.nodes["c"].state == "lost"
    assert ("replace", "") not in stage.cluster.state.deadlines._at


def test_lost_nodes_are_forgotten_when_nobody_needs_them() -> None:
    stage = replacing_on(running(), replace_nodes=False, forget_after_s=600.0)
    stage.do("hello c")
    stage.do("hello d")
    stage.do("lose c")
    stage.do("leaving d")
    stage.do("lose d")
    live(stage, 60, "c", "d")
    assert "d" not in stage.cluster.state.nodes  # it had left in order
    assert stage.cluster.state.nodes["c"].state == "lost"
    live(stage, 600, "c", "d")
    assert "c" not in stage.cluster.state.nodes


def test_what_was_held_against_a_replaced_node_is_not_held_against_its_successor() -> None:
    """A stateful pod keeps its name: the machine below it is another."""
    stage = with_idle()
    state = stage.cluster.state
    state.nodes["c"].excluded["device0"] = "ranks died on it 3 times"
    assert asked(live(stage, 70))
    answer(stage, ok=True)
    stage.do("lose c")
    stage.do("wait 6")
    stage.do("hello c launcher=c-2 incarnation=2")
    node = state.nodes["c"]
    assert (node.excluded, node.replaced, node.unreplaced) == ({}, False, "")
    assert asked(live(stage, 300)) == []


def elected_after(stage: Play, states: dict[str, str], **settings: Any) -> Play:
    """Another leader, that reads what this one has written of its nodes; nobody has spoken to it yet."""
    places = tuple(
        NodePlace(name, state, "silent", f"10.0.0.{name}", "rack") for name, state in states.items()
    )
    stage.do("crash")
    stage.cluster.state.settings = dataclasses.replace(
        stage.cluster.state.settings,
        replace_nodes=True,
        replace_after_s=60.0,
        node_timeout_s=30.0,
        **settings,
    )
    expected = tuple(name for name, state in states.items() if state != "lost")
    elected = dataclasses.replace(stage.etcd.elect(stage.now), nodes=expected, places=places)
    stage.feed(elected)
    return stage


@pytest.mark.parametrize("state", ["lost", "up"])
def test_the_next_leader_replaces_what_was_lost_before_it_or_meanwhile(state: str) -> None:
    stage = elected_after(with_idle(), {"a": "up", "b": "up", "c": state})
    for name in "ab":
        stage.do(f"hello {name}")
    lines = live(stage, 120, "c")
    assert asked(lines) == [f"c gone (it is lost: {stage.cluster.state.nodes['c'].reason})"]
    effect = stage.last[fx.ReplaceNode]
    assert (effect.address, effect.domain) == ("10.0.0.c", "rack")
    answer(stage, ok=True)
    live(stage, 10, "c")
    assert "c" not in stage.cluster.state.nodes
    stage.do("stored")
    assert stage.last[fx.ForgetNode].node == "c"


def test_what_was_lost_long_ago_is_no_mass_loss_of_the_next_leaders() -> None:
    states = dict.fromkeys("ab", "up") | dict.fromkeys("cdefgh", "lost")
    stage = elected_after(with_idle(), states, replace_per_hour=100)
    for name in "ab":
        stage.do(f"hello {name}")
    assert len(asked(live(stage, 120, *"cdefgh"))) == 6
    assert stage.cluster.state.guard is None


def test_a_leader_that_replaces_nobody_does_not_recall_who_was_lost() -> None:
    stage = with_idle()
    stage.do("crash")
    elected = dataclasses.replace(
        stage.etcd.elect(stage.now), nodes=("a",), places=(NodePlace("c", "lost", "", "x"),)
    )
    stage.feed(elected)
    assert "c" not in stage.cluster.state.nodes


def test_an_answer_about_another_life_is_dropped() -> None:
    stage = play("elect", "hello a")
    before = dict(stage.cluster.counts)
    stage.feed(ev.NodeReplaced("a", 99, True, ""))
    stage.feed(ev.NodeReplaced("nobody", 1, True, ""))
    assert stage.cluster.counts["stale_replacement"] - before.get("stale_replacement", 0) == 2
    assert not stage.cluster.state.nodes["a"].replaced


def test_a_node_that_goes_away_and_cannot_be_done_without_is_saved_first() -> None:
    """The pod is evicted, and there is no other: what its ranks have done since the last checkpoint stays."""
    stage = running("submit nodes=1 nproc=2 storage=file:///c", "a")
    stage.do("all running gen=1 step=24 bytes=40000000")
    stage.do("snapshot 20")
    stage.do("stored")
    lines = stage.do("leaving a deadline=60")
    lines += stage.do("beat a") + stage.do("wait 2")
    assert [line for line in lines if line.startswith("Persist a") and "20-1" in line], lines
    assert not [line for line in lines if line.startswith("Note drain_forced")]


def test_a_node_that_others_can_replace_is_left_without_a_checkpoint() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c", "a")
    stage.do("hello b")
    stage.do("all running gen=1 step=24 bytes=40000000")
    stage.do("snapshot 20")
    lines = stage.do("leaving a deadline=60") + stage.do("beat a") + stage.do("wait 2")
    assert not [line for line in lines if line.startswith("Persist")]
    assert [line for line in lines if line.startswith("Launch b")]
