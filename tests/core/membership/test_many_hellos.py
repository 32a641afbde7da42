"""All agents of a large cluster come to a new leader at once: what each of them costs does not grow."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.scale import shape
from benchmarks.scale.shape import Fleet
from controlplane.core import cluster as cluster_module
from controlplane.core.checkpoint import voiding
from controlplane.core.cluster import Cluster
from controlplane.core.membership import mass_failure
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from controlplane.core.records.timing import LOOK_GAP_MAX_S, look_gap_s
from controlplane.core.state.cluster_state import Node
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.rows import RecordMapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

NODES = 200
PER_S = 500.0
STEP = 100


@contextlib.contextmanager
def counted(function: Callable[..., Any] = cluster_module._drive) -> Iterator[Counter[str]]:
    """How often each job is driven within the context; or how often this function is called."""
    found: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is function.__code__:
            found[getattr(frame.f_locals.get("job"), "name", "")] += 1

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


def test_a_node_that_etcd_has_as_it_is_is_not_written_again() -> None:
    made = successor()
    assert not any(isinstance(each, fx.STORES) for each in made.step(1.0, shape.joined(0, 1, STEP)))
    moved = dataclasses.replace(shape.joined(1, 1, STEP), address="10.0.0.9")
    (stored,) = [each for each in made.step(1.0, moved) if isinstance(each, fx.StoreNode)]
    assert (stored.node, stored.address) == (shape.name_of(1), "10.0.0.9")
    made.step(1.1, ev.Stored(stored.ticket))
    cordoned = made.step(1.2, ev.CordonRequested(shape.name_of(0), on=True, reason="a test"))
    (marked,) = [each for each in cordoned if isinstance(each, fx.StoreNode)]
    made.step(1.3, ev.Stored(marked.ticket))
    again = made.step(9.0, dataclasses.replace(shape.joined(0, 2, STEP), launcher="another"))
    assert any(isinstance(each, fx.StoreNode) for each in again), "it is not as the former leader left it"


def test_a_guard_that_waits_for_many_nodes_is_not_asked_at_each_word() -> None:
    """All nodes but some are silent for longer than their timeout; those that come have no look at all."""
    made = successor()
    for node in range(20):
        greet(made, node, 1.0)
    made.step(31.0, ev.Tick())
    assert made.state.guard is not None and len(made.state.guard.waits) > NODES // 2
    with counted(mass_failure.due) as looks:
        for node in range(20, NODES // 2):
            greet(made, node, 31.1)
    assert sum(looks.values()) <= 1
    made.check()


def test_when_nodes_change_no_job_asks_every_node_for_copies_of_its_snapshots() -> None:
    """Here no node keeps any. Each job is driven all the same."""
    made = successor()
    for node in range(NODES):
        greet(made, node, 1.0)
    made.step(made.next_deadline(), ev.Tick())
    with counted() as drives:
        made.step(10.0, ev.NodeBroken(shape.name_of(0), 1, "the stream ended"))
    assert len(drives) == Fleet(NODES).jobs
    with counted(Node.copies_of) as asked:
        made.step(15.0, ev.NodeBroken(shape.name_of(1), 1, "the stream ended"))
    assert not asked
    made.check()


def test_to_look_for_snapshots_that_some_rank_lacks_asks_each_rank_once_for_each_step() -> None:
    """A leader that lags hears of the newest snapshots of half of the nodes before the others."""
    made = successor()
    for node in range(NODES):
        greet(made, node, 1.0)
    made.step(3.0, ev.Tick())
    newer = STEP + 2 * shape.OFFER_EVERY
    with counted(voiding.left_out) as asked:
        for node in range(shape.NODES_PER_JOB // 2):
            made.step(60.0 + node, shape.beat(node, 1, 2, newer))
    looks = shape.NODES_PER_JOB // 2 / made.state.settings.long_retry_s + 1
    assert 0 < sum(asked.values()) <= looks * shape.NODES_PER_JOB * shape.RANKS
    made.check()
