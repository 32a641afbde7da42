"""A node whose processes nobody here has started, as after the loss of etcd, takes no others beside them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import MemberPhase
from tests.core.failures.test_resilience import cluster, hello
from tests.core.make import spec
from tests.core.test_cluster import play

if TYPE_CHECKING:
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.model import MemberStatus


def trained() -> tuple[MemberStatus, ...]:
    """What an agent told of a rank of job j, in the second generation of a cluster that is no more."""
    before = play("elect", "hello a", "submit nodes=1 nproc=1", "stored", "all starting")
    return tuple(
        dataclasses.replace(each, phase=MemberPhase.RUNNING, generation=2, step=40)
        for each in before.hosts["a"].members.values()
    )


def anew(statuses: tuple[MemberStatus, ...]) -> Cluster:
    """A cluster whose etcd is empty, and whose node runs these."""
    made = cluster(0)
    made.step(1.0, dataclasses.replace(hello("a"), members=statuses))
    made.step(1.1, ev.NodeBeat("a", 1, 1, 1, statuses))
    return made


def test_another_job_waits_and_says_whose_ranks_are_there() -> None:
    made = anew(trained())
    made.step(2.0, ev.JobSubmitted(spec(job="other")))
    job = made.state.jobs["other"]
    assert job.phase.value == "pending"
    assert "a (it runs ranks of jobs that are not known here: j)" in job.reason
    (row,) = view.nodes(made, 2.0)
    assert (row.standing, row.reason) == ("held", "it runs ranks of jobs that are not known here: j")
    made.step(5.0, ev.NodeBeat("a", 1, 2, 1))
    assert job.phase.value == "storing"


def test_the_same_job_waits_until_its_former_processes_are_killed() -> None:
    statuses = trained()
    made = anew(statuses)
    made.step(2.0, ev.JobSubmitted(spec(job="j")))
    job = made.state.jobs["j"]
    assert (job.phase.value, job.members) == ("pending", {})
    effects = made.step(3.0, ev.NodeBeat("a", 1, 2, 1, statuses))
    assert [each.member for each in effects if isinstance(each, fx.Kill)] == [statuses[0].member]
    assert "a (it runs processes of a former life of j, which are killed)" in job.reason
    made.step(5.0, ev.NodeBeat("a", 1, 3, 1))
    assert job.phase.value == "storing"
