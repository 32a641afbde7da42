"""Each kind of live finding: found where it is, of the right subject, and not where nothing is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Shape, Truth
from benchmarks.diagnosis.live.score import judge
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from controlplane.cli.doctor.readers import windows_file
from controlplane.core.records.diagnosis import Thresholds
from controlplane.core.state.findings import Level
from tests.analysis.live.jobs import STEPS, job, kinds, opened, rows_of, watched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.analysis.live.readings import JobWindow, RankWindow
    from controlplane.core.state.findings import Finding

SHAPE = Shape(
    seed=11, nodes=6, per_node=4, pp=1, tp=1, windows=44, steps=6, step_s=1.6, devices=False, tokens=False,
    noise="gaussian", sigma=0.02, lasting=0.01, length_sigma=0.1, evaluate=True, snapshot_every=6,
)  # fmt: skip
PIPELINE = replace(SHAPE, nodes=8, pp=4, devices=True)
FAULTS = [
    (SHAPE, Truth("slow_rank", rank=5, factor=1.5, onset=20)),
    (replace(SHAPE, devices=True), Truth("slow_rank", rank=23, factor=1.3, onset=20)),
    (SHAPE, Truth("slow_node", node=2, factor=1.4, onset=20)),
    (SHAPE, Truth("throttled", rank=5, factor=1.5, onset=20)),
    (SHAPE, Truth("throttled", node=3, factor=2.0, onset=20)),
    (SHAPE, Truth("heavy_work", rank=5, factor=1.5, onset=20)),
    (replace(SHAPE, tokens=True, devices=True), Truth("heavy_work", rank=5, factor=1.5, onset=20)),
    (PIPELINE, Truth("overfull_last_stage", stage=3, factor=1.4)),
    (PIPELINE, Truth("overfull_stage", stage=1, factor=1.4)),
    (SHAPE, Truth("uneven_work", factor=2.0)),
    (SHAPE, Truth("slow_data", rank=7, factor=1.4, onset=20)),
    (SHAPE, Truth("slow_data", node=1, factor=1.4, onset=20)),
    (SHAPE, Truth("slow_data", factor=1.6, onset=20)),
    (SHAPE, Truth("slow_snapshot", rank=7, factor=1.4, onset=20)),
    (SHAPE, Truth("memory_leak", rank=7, factor=2.5)),
    (SHAPE, Truth("memory_leak", factor=2.5)),
    (SHAPE, Truth("job_slowed", factor=1.8, onset=20)),
]


@pytest.mark.parametrize(("shape", "truth"), FAULTS, ids=lambda each: getattr(each, "kind", None))
def test_a_fault_is_named_and_nothing_else(shape: Shape, truth: Truth) -> None:
    outcome = judge(1, windows.played(shape, truth), truth, shape.per_node)
    assert not outcome.failed
    assert list(outcome.opened) == [outcome.expected], outcome.texts


@pytest.mark.parametrize("noise", ["gaussian", "lognormal", "bursts", "noisy_neighbour", "drift"])
@pytest.mark.parametrize(
    "shape", [SHAPE, PIPELINE, replace(SHAPE, nodes=1, per_node=1)], ids=["flat", "pipeline", "one"]
)
def test_nobody_is_named_where_nothing_is_wrong(shape: Shape, noise: str) -> None:
    healthy = replace(shape, noise=noise, sigma=0.04, length_sigma=0.2)
    outcome = judge(1, windows.played(healthy, Truth()), Truth(), shape.per_node)
    assert not outcome.failed and outcome.windows == healthy.windows
    assert outcome.texts == ()


def test_files_give_the_same_findings(tmp_path: Path) -> None:
    truth = Truth("slow_rank", rank=5, factor=1.5, onset=20)
    windows.write(tmp_path, 11, windows.played(SHAPE, truth), truth)
    assert windows.read_truth(tmp_path, 11) == truth
    again = judge(1, windows_file.read(tmp_path / "inputs" / "11.jsonl.gz"), truth, SHAPE.per_node)
    assert again.texts == judge(1, windows.played(SHAPE, truth), truth, SHAPE.per_node).texts != ()


def test_a_slow_rank_is_named_with_node_device_onset_and_cost() -> None:
    found = watched(job(16, own=lambda rank, window: 1.6 if rank == 6 and window >= 12 else 1.0))
    (finding,) = opened(found)
    assert (finding.kind, finding.subject) == ("slow_rank", "rank 6 (n1, device 2)")
    assert finding.level is Level.CRITICAL and finding.job == "j"
    assert dict(finding.place)["node"] == "n1" and dict(finding.place)["rank"] == 6
    onset = STEPS * 12 + 1
    assert finding.first_step is not None and abs(finding.first_step - onset) <= STEPS
    assert dict(finding.evidence)["own_ratio"] == pytest.approx(1.6, rel=0.05)
    assert "drain" in finding.recommendation and finding.recommendations[0].gain_ratio == pytest.approx(
        0.35, abs=0.05
    )
    last = found[-1]
    assert last.slowdown == pytest.approx(1.7 / 1.1, rel=0.05)
    assert last.loss_s == pytest.approx(0.6 * STEPS, rel=0.1)
    assert (last.loss.worst_rank, last.loss.worst_node) == (6, "n1") and last.loss.worst_rank_share > 0.9  # type: ignore[operator]
    assert last.anatomy is not None
    anatomy = last.anatomy.row(6)
    assert anatomy.ratio == pytest.approx(1.6, rel=0.05) and sum(anatomy.shares.values()) == pytest.approx(
        1.0
    )
    assert [each.rank for each in last.anatomy.rows()] == list(range(16))


def test_the_order_of_rows_does_not_matter() -> None:
    plain = job(16, own=lambda rank, window: 1.6 if rank in (6, 9) and window >= 12 else 1.0)
    shuffled = [
        replace(each, ranks=columns_of(Random(at).sample(rows_of(each), 16))) for at, each in enumerate(plain)
    ]
    first, second = watched(plain), watched(shuffled)
    assert [each.findings for each in first] == [each.findings for each in second]
    assert [each.loss for each in first] == [each.loss for each in second]
    assert len(first[-1].findings) == 2


def test_of_two_ranks_the_one_that_changed_is_named_with_less_confidence() -> None:
    (finding,) = opened(watched(job(2, own=lambda rank, window: 1.6 if rank and window >= 14 else 1.0)))
    assert (finding.kind, dict(finding.place)["rank"]) == ("slow_rank", 1)
    assert finding.confidence <= 0.5 and "no majority" in finding.reason


def test_of_two_ranks_that_always_differed_nobody_is_named() -> None:
    (finding,) = opened(watched(job(2, own=lambda rank, window: 1.6 if rank else 1.0)))
    assert (finding.kind, finding.subject, finding.place) == ("uneven_work", "", ())
    assert "two ranks, no majority" in finding.reason


def test_one_rank_alone_is_compared_with_its_own_past() -> None:
    (finding,) = opened(watched(job(1, own=lambda rank, window: 2.0 if window >= 14 else 1.0)))
    assert (finding.kind, finding.subject) == ("job_slowed", "")


def test_longer_sequences_do_not_slow_a_job() -> None:
    def longer(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(tokens=8192 * STEPS * (2 if window >= 14 else 1))

    assert opened(watched(job(8, own=lambda rank, window: 2.0 if window >= 14 else 1.0, change=longer))) == []


def test_a_short_burst_is_not_announced() -> None:
    assert (
        opened(watched(job(16, own=lambda rank, window: 2.0 if rank == 6 and 12 <= window < 15 else 1.0)))
        == []
    )


def test_the_first_rank_may_do_more_between_its_phases_and_is_told_what() -> None:
    def logs(rank: int, window: int, row: RankWindow) -> RankWindow:
        extra = 0.4 * STEPS if rank == 0 else 0.0
        return row._replace(
            other_s=extra,
            wall_s=row.wall_s + 0.4 * STEPS,
            communication_s=row.communication_s + 0.4 * STEPS - extra,
        )

    (finding,) = opened(watched(job(8, change=logs)))
    assert finding.kind == "slow_rank" and "between its phases" in finding.recommendation


def test_bottlenecks_state_their_own_numbers() -> None:
    def waits(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(
            wall_s=row.wall_s + STEPS,
            communication_s=row.communication_s + STEPS,
            device_used=0.4,
            memory_bytes=95 * 2**30,
            memory_limit_bytes=100 * 2**30,
        )

    found = {each.kind: each for each in opened(watched(job(8, change=waits)))}
    assert set(found) == {"communication_bound", "device_underused", "memory_nearly_full"}
    assert "8 ranks" in found["memory_nearly_full"].reason and "95%" in found["memory_nearly_full"].reason
    assert "40%" in found["device_underused"].reason
    gains = [each.gain_ratio for each in found["communication_bound"].recommendations]
    measured = [gain for gain in gains if gain is not None]
    assert measured == sorted(measured, reverse=True) and gains == [
        *measured,
        None,
    ]  # nodes' links: not measured
    first, second = found["memory_nearly_full"].recommendations
    assert "GiB are left" in first.action and "8 of 8 ranks" in second.action
    idle = found["device_underused"].recommendations[0]
    assert "idle for 60%" in idle.action and idle.gain_ratio is not None and idle.gain_ratio <= 0.6


def held(gib: float, peak_gib: float, limit_gib: float, ranks: tuple[int, ...] = (3,)) -> list[JobWindow]:
    """A job in which the allocators of some ranks hold so much."""

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(
            memory_bytes=int(0.5 * peak_gib * 2**30),
            memory_peak_bytes=int(peak_gib * 2**30),
            memory_reserved_bytes=int((gib if rank in ranks else peak_gib) * 2**30),
            memory_limit_bytes=int(limit_gib * 2**30),
        )

    return job(8, change=change)


def test_memory_in_pieces_is_named_where_the_device_is_full() -> None:
    (finding,) = opened(watched(held(78.0, 50.0, 80.0)))
    assert (finding.kind, dict(finding.place)["rank"], finding.level) == (
        "memory_fragmented",
        3,
        Level.DEGRADED,
    )
    assert (
        "holds 78 GiB of the device's 80 GiB" in finding.reason
        and "more than 50 GiB at once" in finding.reason
    )
    assert dict(finding.evidence)["unused_ratio"] == pytest.approx(28 / 78)
    assert "expandable_segments" in finding.recommendations[0].action
    (several,) = opened(watched(held(78.0, 50.0, 80.0, ranks=(3, 5))))
    assert several.place == () and "2 ranks have such memory" in several.reason


@pytest.mark.parametrize(
    ("gib", "peak_gib", "limit_gib"),
    [
        (60.0, 40.0, 80.0),  # a quarter of the device is free
        (78.0, 70.0, 80.0),  # a tenth is not used
        (78.0, 0.0, 80.0),  # the peak is not known
        (78.0, 50.0, 0.0),  # the limit is not known
        (0.0, 50.0, 80.0),  # no device
        (40.0, 50.0, 41.0),  # absurd: less is held than was used
    ],
)
def test_memory_in_pieces_is_not_guessed(gib: float, peak_gib: float, limit_gib: float) -> None:
    kinds = [each.kind for each in opened(watched(held(gib, peak_gib, limit_gib)))]
    assert "memory_fragmented" not in kinds


def test_how_much_may_be_in_pieces_is_a_setting() -> None:
    assert opened(watched(held(78.0, 50.0, 80.0), JobWatch(Thresholds(fragmented=0.5)))) == []


def test_thresholds_are_settings() -> None:
    def waits(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(wall_s=row.wall_s + STEPS, communication_s=row.communication_s + STEPS)

    quiet = JobWatch(Thresholds(communication=0.8))
    assert opened(watched(job(8, change=waits), quiet)) == []


@pytest.mark.parametrize("silent", [(2,), range(8)])
def test_a_rank_whose_memory_is_not_known_now_does_not_leak_by_bytes(silent: Sequence[int]) -> None:
    """As seen in a healthy job: its newest reading was missing, so it had grown by 3 % of nothing."""

    def grows(rank: int, window: int, row: RankWindow) -> RankWindow:
        more = window * 4096 if rank == silent[0] else 0
        known = not (rank in silent and window >= 40)
        return row._replace(memory_bytes=(2**30 + more) * known)

    assert opened(watched(job(8, 60, change=grows))) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ranks", [4, 16])
def test_a_leak_is_that_of_its_rank_though_readings_are_missing(ranks: int, seed: int) -> None:
    """As seen on a crowded machine: of most windows some ranks had no reading, and two of four not of the
    first. What the leaking rank had grown passed for what a typical one does, and a healthy rank, or all of
    them, were accused."""
    chance = Random(seed)

    def grows(rank: int, window: int, row: RankWindow) -> RankWindow:
        more = window * 2**24 if rank == 1 else 0
        missing = chance.random() < 0.4 or (window <= 3 and rank in (0, 3))
        return row._replace(memory_bytes=0 if missing else 2**29 + more)

    assert kinds(opened(watched(job(ranks, 90, change=grows)))) == [("memory_leak", "rank 1 (n0, device 1)")]


def test_memory_that_grows_over_few_steps_is_no_leak() -> None:
    """As seen in a healthy job of uneven lengths, with steps of a second in windows of one: within 60 steps
    its allocator met longer and longer sequences."""

    def grows(steps: int) -> list[Finding]:
        def change(rank: int, window: int, row: RankWindow) -> RankWindow:
            return row._replace(memory_bytes=2**28 + window * 2**18, last_step=steps * window)

        return opened(watched(job(8, 60, change=change)))

    assert grows(1) == []
    assert kinds(grows(5)) == [("memory_leak", "")]


def test_a_leak_is_forecast() -> None:
    def grows(rank: int, window: int, row: RankWindow) -> RankWindow:
        more = window * 2**26 if rank == 3 else 0
        return row._replace(memory_bytes=row.memory_bytes + more, memory_limit_bytes=20 * 2**30)

    (finding,) = opened(watched(job(8, 60, change=grows)))
    assert (finding.kind, dict(finding.place)["rank"], finding.level) == ("memory_leak", 3, Level.CRITICAL)
    evidence = dict(finding.evidence)
    assert evidence["growth_bytes_per_s"] == pytest.approx(2**26 / 10.0, rel=0.05)
    left = float(evidence["out_of_memory_in_s"])
    assert math.isfinite(left) and 1000.0 < left < 1600.0


def test_a_slow_node_is_no_slow_replica_although_replicas_span_nodes() -> None:
    """Rank 0 does a little more than others, and is in one replica with a rank of the slow node."""

    def two_stages(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(stage=rank // 16, dp_rank=rank % 16)

    def own(rank: int, window: int) -> float:
        return 1.5 if 16 <= rank < 20 else 1.04 if rank == 0 else 1.0

    found = opened(watched(job(32, own=own, change=two_stages)))
    assert kinds(found) == [("slow_node", "node n4")]


def test_a_slow_replica_on_several_nodes_is_named_as_one() -> None:
    def two_stages(rank: int, window: int, row: RankWindow) -> RankWindow:
        return row._replace(stage=rank // 16, dp_rank=rank % 16 // 2)

    found = opened(
        watched(job(32, own=lambda rank, window: 1.5 if rank % 16 in (2, 3) else 1.0, change=two_stages))
    )
    assert kinds(found) == [("slow_replica", "replica 1")]


def test_several_slow_ranks_do_not_hide_each_other() -> None:
    slow = (1, 6, 11)
    found = opened(watched(job(16, own=lambda rank, window: 1.5 if rank in slow else 1.0)))
    assert sorted(kinds(found)) == [
        ("slow_rank", f"rank {each} (n{each // 4}, device {each % 4})") for each in (1, 11, 6)
    ]


@pytest.mark.parametrize("burst", [2, 3])
def test_a_rank_that_waits_for_samples_alone_in_its_stage_does_not_slow_the_job_on_all_ranks(
    burst: int,
) -> None:
    """As seen in a made-up job of four stages with a rank each: after some longer steps of all, the job was
    called slow before the rank that everybody waited for."""

    def own(rank: int, window: int) -> float:
        return 1.6 if 20 - burst <= window < 20 else 1.0

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        late_s = 1.6 * STEPS if window >= 20 else 0.0
        phase = "data_s" if rank == 2 else "communication_s"
        changed: dict[str, Any] = {phase: getattr(row, phase) + late_s, "wall_s": row.wall_s + late_s}
        return row._replace(stage=rank, dp_rank=0, **changed)

    assert kinds(opened(watched(job(4, 45, own=own, change=change)))) == [
        ("slow_data", "rank 2 (n0, device 2)")
    ]


@pytest.mark.parametrize(("period", "kind"), [(7, "slow_snapshot"), (9, "slow_snapshot"), (13, "long_tail")])
def test_waits_for_the_snapshots_of_one_rank_are_no_communication(period: int, kind: str) -> None:
    """As seen in a made-up job: a tail of communication was found before the rank that copied for so long."""

    def change(rank: int, window: int, row: RankWindow) -> RankWindow:
        late_s = 8.0 if window % period == 0 and window >= 20 else 0.0
        phase = "snapshot_s" if rank == 3 else "communication_s"
        changed: dict[str, Any] = {phase: getattr(row, phase) + late_s, "wall_s": row.wall_s + late_s}
        return row._replace(**changed)

    (finding,) = opened(watched(job(8, 80, change=change)))
    assert finding.kind == kind
    assert "communication" not in finding.reason
