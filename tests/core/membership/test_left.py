"""A node that was ended in order has left; it is not lost, for this leader and for the next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.census import census
from controlplane.core.cluster import Cluster
from controlplane.core.records import events as ev
from controlplane.core.records.model import NodePlace
from tests.core.failures.test_resilience import S, cluster, hello
from tests.core.test_cluster import play

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def shown(stage: Play) -> dict[str, str]:
    return {row.node: row.state for row in view.nodes(stage.cluster, stage.now)}


def test_an_agent_that_was_ended_in_order_is_not_lost() -> None:
    stage = play("elect", "hello a", "hello b", "stored", "leaving b", "break b")
    assert shown(stage) == {"a": "up", "b": "left"}
    stage.do("live 40 b", "stored")
    assert shown(stage) == {"a": "up", "b": "left"}
    assert census(stage.cluster, stage.now).nodes == {"up": 1, "left": 1}
    health = view.health(stage.cluster, stage.now)
    assert (health.level, health.reasons) == ("healthy", ())
    assert stage.cluster.state.nodes["b"].failure_history is None


def test_an_agent_that_broke_while_it_was_to_leave_is_lost() -> None:
    stage = play("elect", "hello a", "hello b", "submit nodes=1 nproc=1", "stored", "all starting")
    stage.do("leaving a", "break a")
    stage.do("live 40 a")
    assert shown(stage)["a"] == "lost"
    assert any("1 of 2 nodes are lost: a" in why for why in view.health(stage.cluster, stage.now).reasons)


def test_it_may_be_used_again_once_it_is_back_with_the_same_launcher() -> None:
    made = cluster(1)
    made.step(1.0, ev.NodeLeaving("n0", 1, "an upgrade", 60.0))
    made.step(2.0, ev.NodeBroken("n0", 1, "its stream ended"))
    made.step(9.0, hello("n0", 2))
    (row,) = view.nodes(made, 9.0)
    assert (row.state, row.standing, row.reason) == ("up", "ok", "")


def test_the_next_leader_knows_that_it_left() -> None:
    made = Cluster(dataclasses.replace(S, forget_after_s=900.0))
    made.step(0.0, ev.Elected(2, wall_s=1e9, nodes=("n0",), places=(NodePlace("n9", "left", "ended"),)))
    rows = {row.node: row.state for row in view.nodes(made, 1.0)}
    assert rows["n9"] == "left"


def test_ranks_of_a_job_that_etcd_has_lost_are_told() -> None:
    before = play("elect", "hello a", "submit nodes=1 nproc=1", "stored", "all starting")
    statuses = tuple(before.hosts["a"].members.values())
    made = cluster(0)
    made.step(1.0, dataclasses.replace(hello("a"), members=statuses))
    for seq in range(1, 8):
        made.step(10.0 * seq, ev.NodeBeat("a", 1, seq, 1, statuses))
    found = view.health(made, 70.0)
    assert found.level == "degraded"
    assert "a: it runs ranks of jobs that are not known here: j" in found.reasons
