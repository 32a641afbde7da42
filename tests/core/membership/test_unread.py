"""A member of which an agent tells in words that are unknown here is there still: what was known stands."""

from __future__ import annotations

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from tests.core.test_cluster import running


@pytest.mark.parametrize("unread", [True, False])
def test_a_beat_that_cannot_tell_a_member_is_no_word_of_its_end(unread: bool) -> None:
    stage = running()
    host = stage.hosts["a"]
    names = tuple(host.members)
    host.seq += 1
    beat = ev.NodeBeat("a", host.incarnation, host.seq, 29500, (), (), names if unread else ())
    judged = [each for each in stage.cluster.step(stage.now, beat) if isinstance(each, fx.Judged)]
    assert names
    assert bool(judged) is not unread


@pytest.mark.parametrize("unread", [True, False])
def test_a_hello_that_cannot_tell_a_member_is_no_word_of_its_end(unread: bool) -> None:
    stage = running()
    host = stage.hosts["a"]
    names = tuple(host.members)
    stage.cluster.step(stage.now, ev.NodeBroken("a", host.incarnation, "the agent is replaced"))
    launcher = stage.cluster.state.nodes["a"].launcher
    hello = ev.NodeJoined(
        "a", host.incarnation + 1, launcher, "10.0.0.1", 4, 29500, unread=names if unread else ()
    )
    judged = [each for each in stage.cluster.step(stage.now, hello) if isinstance(each, fx.Judged)]
    assert bool(judged) is not unread
