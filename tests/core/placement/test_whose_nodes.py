"""Nodes that take the ranks of some jobs only: pods whose image holds one script are no other job's."""

from __future__ import annotations

import pytest

from controlplane.core import view
from tests.core.test_cluster import play, running


def test_a_job_waits_rather_than_take_another_jobs_node() -> None:
    stage = play("elect", "hello a", "hello b jobs=other", "submit nodes=2 nproc=1", "stored", "wait 20")
    (row,) = view.jobs(stage.cluster, stage.now)
    assert row.phase == "pending"
    assert "not to be used: b (it takes ranks of other only)" in row.reason
    stage.do("hello c jobs=other,j")
    stage.do("stored")
    stage.do("wait 20")
    assert set(stage.cluster.state.jobs["j"].seat_nodes()) == {"a", "c"}


@pytest.mark.parametrize(("jobs", "taken"), [("other", False), ("j", True), ("", True)])
def test_a_lost_nodes_ranks_go_to_nodes_of_the_job(jobs: str, taken: bool) -> None:
    stage = running("submit nodes=2 nproc=1")
    stage.do(f"hello c jobs={jobs}")
    stage.do("lose b")
    stage.do("live 60 b")
    stage.do("stored")
    assert ("c" in stage.cluster.state.jobs["j"].seat_nodes()) is taken


def test_a_job_does_not_grow_onto_another_jobs_node() -> None:
    stage = play(
        "elect", "hello a", "submit nodes=1 most=2 nproc=1", "stored", "wait 10", "stored", "all starting",
        "all ready held=-1", "stored", "all forming gen=1", "all running gen=1 step=0", "started", "stored",
    )  # fmt: skip
    stage.do("hello b jobs=other")
    assert not [line for line in stage.do("live 120") if line.startswith("Launch b")]
    stage.do("hello c jobs=j")
    assert [line for line in stage.do("live 60") if line.startswith("Launch c")]
