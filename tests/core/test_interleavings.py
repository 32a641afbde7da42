"""Interleavings that cost a job its life, or its honesty, before they were looked at."""

from __future__ import annotations

from controlplane.core import effects as fx
from controlplane.core import events as ev
from tests.core.test_cluster import play, running
from tests.transcripts.language import Play


def live(stage: Play, nodes: str, seconds: int) -> list[str]:
    """Time passes, and these nodes beat."""
    lines = []
    for _ in range(seconds):
        lines += [line for node in nodes for line in stage.do(f"beat {node}")]
        lines += stage.do("wait 1")
    return lines


def test_a_node_lost_while_the_first_generation_is_stored_does_not_hang_the_job() -> None:
    stage = play("elect", "hello a", "hello b", "hello c", "stored", "submit nodes=2 nproc=1")
    stage.do("lose b")
    live(stage, "ac", 35)
    lines = stage.do("stored") + stage.do("stored")
    launched = [line.split()[1] for line in lines if line.startswith("Launch") and " under #2" in line]
    assert launched == ["a", "c"], lines


def test_a_failed_job_is_taken_up_again_although_a_node_of_its_former_life_is_lost() -> None:
    stage = running("submit nodes=1 nproc=1", "ab")
    stage.do("break a")
    stage.do("stop enough")
    stage.do("stored")
    live(stage, "b", 35)
    lines = stage.do("submit nodes=1 nproc=1") + stage.do("stored")
    assert [line for line in lines if line.startswith("Launch b")], lines


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
