"""All agents of a large cluster come to a new leader at once: what each of them costs does not grow."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.scale import shape
from benchmarks.scale.shape import Fleet
from controlplane.core import cluster as cluster_module
from controlplane.core.cluster import Cluster
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from controlplane.core.records.timing import LOOK_GAP_MAX_S, look_gap_s
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.rows import RecordMapping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

NODES = 200
PER_S = 500.0
STEP = 100


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each job is driven within the context."""
    found: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is cluster_module._drive.__code__:
            found[frame.f_locals["job"].name] += 1

    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)


def successor() -> Cluster:
    """A new leader that knows the fleet from etcd, and has heard nobody."""
    records = RecordMapping(Keyspace("c"))
    rows = {key: value for each in Fleet(NODES).records() for key, value in records.puts(each).items()}
    made = Cluster()
    made.step(0.0, records.elected(2, {key: value for key, value in rows.items() if value}))
    return made


def greet(made: Cluster, node: int, now: float) -> list[fx.Effect]:
    """One agent's hello, and its first beat. Writes are answered at once. Returns the hello's effects."""
    effects = made.step(now, shape.joined(node, 1, STEP))
    for each in effects:
        if isinstance(each, fx.STORES):
            made.step(now, ev.Stored(each.ticket))
    made.step(now, shape.beat(node, 1, 1, STEP + 1))
    return effects


def test_the_hellos_of_a_whole_cluster_drive_no_job_each() -> None:
    made = successor()
    with counted() as drives:
        for node in range(NODES):
            assert any(isinstance(each, fx.Admit) for each in greet(made, node, 1.0 + node / PER_S))
    spent_s = NODES / PER_S
    looks_most = spent_s / look_gap_s(NODES) + 3  # the first hello, and a job's last rank
    assert max(drives.values()) <= looks_most, drives
    made.check()


def test_the_last_look_comes_by_itself_and_sees_everybody() -> None:
    made = successor()
    for node in range(NODES):
        greet(made, node, 1.0 + node / PER_S)
    made.step(made.next_deadline(), ev.Tick())
    made.step(made.state.now + LOOK_GAP_MAX_S, ev.Tick())
    for job in made.state.jobs.values():
        assert job.phase is JobPhase.RUNNING and not job.replicas.replan
        assert all(member.status is not None for member in job.seated())
    made.check()


def test_a_rank_that_dies_among_the_hellos_is_judged_at_once() -> None:
    made = successor()
    for node in range(NODES // 2):
        greet(made, node, 1.0 + node / PER_S)
    effects = made.step(2.0, shape.beat(3, 1, 2, STEP + 1, killed=True))
    (judged,) = [each for each in effects if isinstance(each, fx.Judged)]
    assert judged.verdict.job == shape.job_of(3)


def test_in_a_small_cluster_each_change_is_looked_at_at_once() -> None:
    made = Cluster()
    made.step(0.0, ev.Elected(1))
    made.step(0.0, ev.JobSubmitted(shape.training("j", 0, 2)[0]))
    for node in range(2):
        with counted() as drives:
            made.step(1.0, shape.joined(node, 1, STEP))
        assert drives["j"] > 0
    assert [look_gap_s(nodes) for nodes in (2, 64, 65, 1_000, 5_000)] == [0.0, 0.0, 0.25, 0.25, 1.0]
