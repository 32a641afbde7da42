"""The failover benchmark's own arithmetic, and one real round of the resize's limit. No time is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import coordinators, failover, verdicts
from benchmarks.log import EventLog

if TYPE_CHECKING:
    from pathlib import Path


class Logs:
    """Where a cluster's ranks write."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs


@pytest.mark.parametrize(
    ("taken", "lost"), [((0, 1, 2, 3), 0), ((0, 1, 2, 2, 3), 1), ((5, 6, 8), 1), ((1, 2, 1, 2, 4), 3)]
)
def test_steps_taken_twice_or_not_at_all_are_lost(tmp_path: Path, taken: tuple[int, ...], lost: int) -> None:
    written = EventLog(tmp_path, rank=0)
    for step in taken:
        written("step", step=step)
    assert failover._lost(Logs(tmp_path)) == lost  # type: ignore[arg-type]


def test_the_99th_percentile_of_few_is_the_largest() -> None:
    assert verdicts.p99([0.1, 0.3, 0.2]) == 0.3
    assert verdicts.p99([float(number) for number in range(200)]) == 197.0


def test_every_key_that_readers_expect_has_a_part() -> None:
    assert list(verdicts.PARTS) == ["process_verdict_p99_s", "hang_named_s", "resize_vs_limit"]


def test_its_cluster_has_a_leader_without_an_etcd_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's etcd is found as `holdfast run` finds it."""
    monkeypatch.delenv("ETCD_BIN", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with coordinators.running() as cluster:
        assert coordinators.until(lambda: _elected(cluster), 60)


def _elected(cluster: coordinators.Cluster) -> bool:
    return any('"Elected"' in path.read_text() for path in cluster.journals if path.exists())


def test_one_round_of_the_limit_of_a_resize() -> None:
    assert len(verdicts.bare_resizes(1)) == 2
