"""Disks that fill up are forecast with a date; saw-teeth, first checkpoints and noise are not."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.live.detectors.resources.disks import disk_filling
from controlplane.analysis.live.readings import DiskReading
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from tests.analysis.live import jobs
from tests.exhaustive import all_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.live.readings import JobWindow
    from controlplane.analysis.live.watch import LiveDiagnosis
    from controlplane.core.state.findings import Finding

GIB = 2.0**30
HOUR_S = 3600.0
TOTAL = 200.0 * GIB


def with_disks(
    free: Callable[[float], float], hours: float, every_s: float = 300.0, nodes: int = 1, path: str = "/ckpt"
) -> list[JobWindow]:
    """Windows of 10 s. `free`: GiB that are free after so many hours."""
    return [
        replace(
            window,
            checkpoint_every_s=every_s,
            disks=tuple(
                DiskReading(f"n{node}", path, "checkpoints", free(window.ended_s / HOUR_S) * GIB, TOTAL)
                for node in range(nodes)
            ),
        )
        for window in jobs.job(4 * nodes, round(hours * 360))
    ]


def watched(windows: list[JobWindow]) -> list[LiveDiagnosis]:
    """What this one detector says: of hours, all of them would take minutes."""
    return jobs.watched(windows, JobWatch(detectors={"disk_filling": disk_filling}))


def ever_found(windows: list[JobWindow]) -> list[Finding]:
    """All that was said of disks, window by window."""
    return [each for seen in watched(windows) for each in seen.findings if each.kind == "disk_filling"]


def test_a_disk_that_fills_steadily_is_forecast_with_its_date() -> None:
    finding = ever_found(with_disks(lambda hours: 134.0 - 36.0 * hours, 1.5))[-1]
    evidence = dict(finding.evidence)
    assert finding.subject == "disk /ckpt of node n0" and finding.level.value == "degraded"
    assert evidence["fills_bytes_per_s"] == pytest.approx(36.0 * GIB / HOUR_S, rel=0.02)
    assert evidence["full_at_s"] == pytest.approx(134.0 / 36.0 * HOUR_S, rel=0.02)
    assert "80 of 200 GiB are free" in finding.reason and finding.reason.endswith("full in 2.2 hours")
    assert dict(finding.place)["node"] == "n0"


def test_one_that_is_full_within_the_hour_is_critical() -> None:
    finding = ever_found(with_disks(lambda hours: 50.0 - 36.0 * hours, 1.0))[-1]
    assert finding.level.value == "critical"


def test_checkpoints_that_are_written_and_deleted_are_a_saw_tooth() -> None:
    """Every 5 minutes 20 GiB are written, for two minutes, and what is older is deleted."""

    def free(hours: float) -> float:
        at_s = hours * HOUR_S % 300.0
        return 60.0 - 20.0 * min(1.0, at_s / 120.0) if at_s < 240.0 else 60.0

    assert ever_found(with_disks(free, 3.0)) == []


def test_the_first_checkpoints_fill_a_disk_until_retention_deletes() -> None:
    """Five of 6 GiB are kept; then as much is deleted as is written."""
    assert ever_found(with_disks(lambda hours: 190.0 - 6.0 * min(5, int(hours * 12)), 3.0)) == []


def test_a_saw_tooth_on_a_slope_is_forecast_all_the_same() -> None:
    """Retention deletes less than is written: something else is left behind."""
    chance = Random(1)
    saw = with_disks(lambda hours: 100.0 - 24.0 * hours - 2.0 * (hours * 12 % 1) + chance.gauss(0, 0.5), 2.0)
    finding = ever_found(saw)[-1]
    assert dict(finding.evidence)["full_at_s"] == pytest.approx(100.0 / 24.0 * HOUR_S, rel=0.1)


@pytest.mark.parametrize("seed", all_but(2, range(10)))
def test_room_that_only_scatters_is_no_finding(seed: int) -> None:
    chance = Random(seed)
    level = [100.0]

    def free(_hours: float) -> float:
        level[0] = min(200.0, max(20.0, level[0] + chance.gauss(0.05 * (100.0 - level[0]), 1.0)))
        return level[0]

    assert ever_found(with_disks(free, 3.0)) == []


def test_one_that_begins_to_fill_late_is_forecast() -> None:
    windows = with_disks(lambda hours: 150.0 - 40.0 * max(0.0, hours - 1.0), 2.5)
    finding = ever_found(windows)[-1]
    assert dict(finding.evidence)["fills_bytes_per_s"] == pytest.approx(40.0 * GIB / HOUR_S, rel=0.1)


def test_a_file_system_that_nodes_share_is_named_once() -> None:
    findings = watched(with_disks(lambda hours: 134.0 - 36.0 * hours, 1.5, nodes=3))[-1].findings
    (finding,) = [each for each in findings if each.kind == "disk_filling"]
    assert (
        finding.subject == "disk /ckpt of 3 nodes alike, n0 for one" and dict(finding.place)["node"] is None
    )


def test_the_history_goes_on_over_generations() -> None:
    windows = with_disks(lambda hours: 134.0 - 36.0 * hours, 1.5)
    later = [
        replace(
            each, generation=2, ranks=columns_of([row._replace(generation=2) for row in jobs.rows_of(each)])
        )
        for each in windows[400:]
    ]
    assert ever_found([*windows[:400], *later])[-1].subject == "disk /ckpt of node n0"
    assert watched([*windows[:400], *later])[-1].findings


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -1.0, 201.0])
def test_what_cannot_be_is_left_out(absurd: float) -> None:
    assert ever_found(with_disks(lambda _hours: absurd, 1.0)) == []
