"""The census counts what the rows show, and the gauges show the census."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.census import census
from controlplane.core.cluster import Cluster
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobSpec, LemonRecord
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.daemon.telemetry.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable


def cluster() -> Cluster:
    made = Cluster()
    bad = LemonRecord("n5", 99.0, 1e9, until_s=2e9, reason="it fails")
    made.step(0.0, ev.Elected(1, nodes=("n9",), lemons=(bad,), wall_s=1e9))
    for index in range(6):
        made.step(1.0, ev.NodeJoined(f"n{index}", 1, "l", f"10.0.0.{index}", 2, 1))
    made.step(
        2.0, ev.JobSubmitted(JobSpec("j", ("t.py",), "/", nnodes_min=3, nnodes_max=3, nproc_per_node=2))
    )
    made.step(3.0, ev.NodeBroken("n4", 1, "the stream ended"))
    return made


def test_the_census_counts_what_the_rows_show() -> None:
    made = cluster()
    found, nodes, ranks = census(made, 5.0), view.nodes(made, 5.0), view.ranks(made, 5.0)
    assert found.nodes == Counter(node.state for node in nodes)
    assert found.processes == Counter(rank.phase for rank in ranks) and found.processes
    assert found.quarantined == 1 and found.spare == 1
    assert found.silence_s == max(node.last_heard_s for node in nodes if node.state == "up") > 0


def test_the_gauges_show_the_census() -> None:
    metrics = Metrics("0")
    Observer(metrics, lambda: 5.0).look(cluster())
    read: Callable[..., float | None] = metrics.registry.get_sample_value
    assert read("holdfast_spare_nodes") == 1 and read("holdfast_quarantined_nodes") == 1
    assert read("holdfast_members", {"level": "node", "state": "up"}) == 5
    assert read("holdfast_members", {"level": "node", "state": "lost"}) == 0
    metrics.forget_state()
    assert read("holdfast_members", {"level": "node", "state": "up"}) == 0
    assert read("holdfast_generation", {"training_job": "j"}) is None
    assert read("holdfast_spare_nodes") == 0


def test_a_job_that_nobody_submitted_has_no_series() -> None:
    """An agent may name any job: what is shown for ever is what the core knows."""
    metrics = Metrics("0")
    observer = Observer(metrics, lambda: 5.0)
    observer.event(ev.SnapshotReady("n1", 1, "x.1", "x", 1, 10, 0.5))
    observer.event(ev.JobSubmitted(JobSpec("j", ("t.py",), "/")))
    observer.event(ev.SnapshotReady("n1", 1, "j.1", "j", 1, 10, 0.5))
    read: Callable[..., float | None] = metrics.registry.get_sample_value
    assert read("holdfast_snapshot_stall_seconds_sum", {"training_job": "j"}) == 0.5
    assert read("holdfast_snapshot_stall_seconds_sum", {"training_job": "x"}) is None


def test_a_look_that_takes_long_is_rare() -> None:
    now = [0.0]
    metrics = Metrics("0")
    made, looks = cluster(), 0

    def clock() -> float:
        now[0] += 0.1  # each reading of the clock is a tenth of a second later
        return now[0]

    observer = Observer(metrics, clock)
    for _ in range(1000):
        metrics.spare_nodes.set(-1)
        observer.look(made)
        looks += metrics.registry.get_sample_value("holdfast_spare_nodes") == 1
    assert 1 < looks < 15
