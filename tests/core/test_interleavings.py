"""Interleavings that cost a job its life, or its honesty, before they were looked at."""

from __future__ import annotations

from controlplane.core import effects as fx
from controlplane.core import events as ev
from tests.core.test_cluster import play


def test_a_name_conflict_may_be_tried_again() -> None:
    stage = play("elect", "hello a")
    effects = stage.cluster.step(1.0, ev.NodeJoined("a", 2, "other", "a", 8, 1))
    assert [effect.retry for effect in effects if isinstance(effect, fx.Refuse)] == [True]


def test_a_node_whose_clock_went_back_is_taken_once_its_former_life_is_lost() -> None:
    stage = play("elect", "hello a incarnation=9", "break a")
    early = stage.cluster.step(1.0, ev.NodeJoined("a", 2, "a-2", "a", 8, 1))
    assert [effect.retry for effect in early if isinstance(effect, fx.Refuse)] == [True]
    stage.do("wait 31")
    late = stage.cluster.step(32.0, ev.NodeJoined("a", 2, "a-2", "a", 8, 1))
    assert fx.Admit("a", 2, 1) in late
