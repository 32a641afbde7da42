"""A node with a slow way to the storage is told apart from a storage that is slow for all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.live import policy
from controlplane.analysis.live.resources.storage import NodeStorage
from tests.analysis.live.jobs import job, kinds, opened, watched

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import JobWindow
    from controlplane.core.state.findings import Finding

NODES = 4
PORTION = float(policy.STORAGE_PORTION_BYTES)
SPEED = PORTION / 4.0  # a portion takes 4 s


def storing(
    seconds: dict[str, float], *, nodes: int = NODES, count: int = 30, since: int = 0
) -> list[JobWindow]:
    """Windows in which each node writes one portion. `seconds`: what it takes some nodes, from `since` on."""
    windows = job(4 * nodes, count)
    return [
        replace(
            window,
            storage=tuple(
                NodeStorage(
                    f"n{each}", PORTION, seconds.get(f"n{each}", 4.0) if at >= since else 4.0, 0.0, 0.0
                )
                for each in range(nodes)
            ),
        )
        for at, window in enumerate(windows)
    ]


def found(windows: list[JobWindow]) -> list[Finding]:
    return opened(watched(windows))


def test_nodes_that_write_alike_are_not_named() -> None:
    assert found(storing({})) == []


def test_a_node_that_writes_slower_than_its_peers_is_named() -> None:
    (finding,) = found(storing({"n2": 20.0}))
    assert (finding.kind, finding.subject) == ("slow_storage", "storage of node n2")
    assert dict(finding.place)["node"] == "n2"
    assert dict(finding.evidence)["storage_ratio"] == pytest.approx(5.0)


def test_a_node_that_reads_slower_is_named() -> None:
    windows = [
        replace(
            each,
            storage=tuple(
                row._replace(bytes_read=PORTION, read_s=row.write_s, bytes_written=0.0, write_s=0.0)
                for row in each.storage
            ),
        )
        for each in storing({"n1": 30.0})
    ]
    (finding,) = found(windows)
    assert finding.subject == "storage of node n1" and "reads checkpoints" in finding.reason


def test_when_all_nodes_become_slower_it_is_the_storage() -> None:
    (finding,) = found(storing({f"n{each}": 20.0 for each in range(NODES)}, since=12))
    assert kinds([finding]) == [("slow_storage", "")]
    assert dict(finding.evidence)["storage_ratio"] == pytest.approx(5.0)


def test_two_nodes_that_differ_are_no_majority() -> None:
    assert found(storing({"n1": 40.0}, nodes=2)) == []


def test_half_of_the_nodes_are_no_exception() -> None:
    assert [each for each in found(storing({"n0": 40.0, "n1": 40.0})) if each.subject] == []


def test_little_traffic_says_nothing() -> None:
    windows = [
        replace(each, storage=tuple(row._replace(bytes_written=1e4) for row in each.storage))
        for each in storing({"n2": 60.0})
    ]
    assert found(windows) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, -math.inf])
@pytest.mark.parametrize("column", ["bytes_written", "write_s"])
def test_impossible_traffic_is_left_out(bad: float, column: str) -> None:
    def changed(row: NodeStorage) -> NodeStorage:
        values: dict[str, Any] = {column: bad}
        return row._replace(**values) if row.node == "n2" else row

    windows = [replace(each, storage=tuple(map(changed, each.storage))) for each in storing({"n2": 60.0})]
    assert found(windows) == []


def test_what_was_long_ago_does_not_count() -> None:
    windows = storing({"n2": 20.0}, count=8)
    later = [
        replace(
            each,
            storage=(),
            began_s=each.began_s + 2 * policy.STORAGE_STALE_S,
            ended_s=each.ended_s + 2 * policy.STORAGE_STALE_S,
        )
        for each in job(4 * NODES, 40)[8:]
    ]
    assert all(not each.findings for each in watched([*windows, *later])[-20:])
