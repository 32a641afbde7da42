"""How many spares a node has, when it becomes known late that the script uses the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.core.elasticity.test_elastic import notes
from tests.core.test_cluster import play

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def taken_for_plain() -> Play:
    """A script that is slow to reach the SDK: its two ranks have got a spare each, of one that was asked."""
    return play(
        "elect", "hello a", "submit nodes=1 nproc=2 spares=1", "stored", "all starting",
        "report j.1000002 warm", "live 25", "report j.1000003 warm",
    )  # fmt: skip


def live(stage: Play) -> list[str]:
    job = stage.cluster.state.jobs["j"]
    return sorted(member.name for member in job.by_node["a"].values() if member.rank < 0 and not member.dead)


def test_a_script_that_is_slow_to_reach_the_sdk_keeps_the_spares_that_were_asked_for() -> None:
    stage = taken_for_plain()
    assert live(stage) == ["j.1000002", "j.1000003"]
    lines = stage.do("report j.1000000 ready held=-1")
    assert live(stage) == ["j.1000002"]
    assert [line for line in lines if line.startswith(("Kill", "Launch"))] == [
        "Kill a j.1000003: it is not needed: the script uses the SDK after all, and has its spares",
        "Launch a j.1000002 spare rank=-1 under #1[0:j.1000000@a 1:j.1000001@a]",
    ]
    assert len(notes(lines)) == 1


def test_a_spare_that_is_not_needed_is_ended_again_until_it_has_ended() -> None:
    stage = taken_for_plain()
    stage.do("report j.1000000 ready held=-1")
    assert any(line.startswith("Kill a j.1000003") for line in stage.do("live 30"))
    stage.do("report j.1000003 exited cause=signaled signal=9")
    assert not any(line.startswith("Kill") for line in stage.do("live 30"))
    assert stage.cluster.state.jobs["j"].recovery.spare_failures == {}


def test_a_spare_that_runs_the_script_already_stays() -> None:
    stage = taken_for_plain()
    stage.do("report j.1000002 starting", "report j.1000003 starting", "report j.1000000 ready held=-1")
    assert live(stage) == ["j.1000002", "j.1000003"]
