"""Buckets and micro-batches: proposed where flight records, profiles and memory carry it, else the reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from controlplane.analysis.flight_records.fields import dump_of
from controlplane.analysis.live.resources.memory_room import memory_room
from controlplane.analysis.live.table import tabulate
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld
from controlplane.analysis.proposals.proposing import propose
from controlplane.analysis.proposals.reductions import RepeatedReductions, of_record
from controlplane.core.state.findings import Finding, Level, Recommendation
from controlplane.daemon.telemetry.job_time import Spent
from tests.analysis.flight_records.made import NOW_NS, world
from tests.analysis.live.jobs import job, opened, watched
from tests.analysis.proposals.played import reported

MIB, GIB = 1 << 20, 2**30
STEP_S = 2.1
SPENT = Spent(900.0, {"forming": 100.0})
STEP = ((4_018_008,), (4_020_000,), ())
"""What a job of two ranks over gloo was seen to reduce in each step: two buckets, and the script's flag."""
SMALL = Finding(
    "small_kernels", Level.DEGRADED, "", "operators take 4 us each", confidence=0.8,
    evidence=(("device_waiting_ratio", 0.6),), recommendations=(Recommendation("Fuse them.", 0.6),),
)  # fmt: skip


def recorded(
    *sizes: tuple[int, ...], times: int = 6, operation: str = "all_reduce", dtype: str = "Float"
) -> Any:
    """The record of rank 0 in which each step, of 2.1 s, calls all-reduces of these sizes."""
    made, *_ = world(2)
    for at, size in enumerate(sizes * times):
        called = NOW_NS + round(1e9 * STEP_S * at / len(sizes))
        made.call(operation, "0", input_sizes=[list(size)], input_dtypes=[dtype], time_created_ns=called)
    return of_record(0, 3, dump_of(0, "made", made.document()))


def bound(reduced: RepeatedReductions | None) -> dict[str, Any]:
    """A job whose communication takes half of a step, with this flight record."""

    def change(rank: int, window: int, row: Any) -> Any:
        return row._replace(communication_s=row.communication_s + 5.0, wall_s=row.wall_s + 5.0)

    seen = watched(job(4, change=change, noise=0.001))
    report = reported(SPENT, *opened(seen), newest=seen[-1])
    return report | {"reductions": None if reduced is None else dataclasses.asdict(reduced)}


def told(report: dict[str, Any], setting: str) -> Proposal | Withheld:
    found = propose(report, 0)
    every: list[Proposal | Withheld] = [*found.proposals, *found.withheld]
    return next(each for each in every if each.setting == setting)


def test_the_reductions_of_a_step_are_read_from_its_record() -> None:
    found = recorded(*STEP)
    assert (found.bytes_each, found.reason) == ((16_072_032, 16_080_000), "")
    assert found.every_s == pytest.approx(STEP_S)
    assert sorted(recorded(*STEP[1:], *STEP[:1]).bytes_each) == sorted(found.bytes_each)
    half = recorded(*STEP, dtype="BFloat16")
    assert half.bytes_each == (8_036_016, 8_040_000)
    assert "no all-reduce as large as gradients" in recorded((100,)).reason
    alike = recorded(STEP[0], STEP[0], ())
    assert alike.bytes_each == (16_072_032,) and 0 < alike.every_s < STEP_S, "one of two that are alike"


def test_records_that_do_not_repeat_or_are_of_sharded_jobs_say_so() -> None:
    made, *_ = world(2)
    for size in range(20):
        made.call("all_reduce", "0", input_sizes=[[100_000 + size]])
    assert "repeat no sequence" in of_record(0, 1, dump_of(0, "made", made.document())).reason
    assert "sharded" in recorded(*STEP[:2], operation="_all_gather_base").reason


def test_large_buckets_of_a_job_that_communication_holds_back_are_to_be_smaller() -> None:
    report = bound(recorded(*STEP))
    found = told(report, "bucket size")
    assert isinstance(found, Proposal) and found.at_most
    assert found.changes == (SettingChange("bucket_cap_mb", "buckets of up to 15.3 MiB", "4"),)
    (finding,) = [each for each in report["findings"] if each["kind"] == "communication_bound"]
    exposed = finding["evidence"]["transfer_share_ratio"]
    backward = next(each["shares"]["backward"] for each in report["anatomy"]["ranks"])
    most = min(exposed * (1 - 4 * MIB / 16_080_000), backward)
    assert found.gain_ratio == pytest.approx(most * 0.9, rel=0.02), "of the time that passes within steps"
    assert found.confidence == finding["confidence"]


@pytest.mark.parametrize(
    ("reduced", "words"),
    [
        (None, "not measured: no flight record of its ranks is known: `holdfast stacks JOB` brings them"),
        (RepeatedReductions(0, 1, reason="its 9 newest repeat no sequence"), "its 9 newest repeat"),
        (RepeatedReductions(1, 1), "the flight record of rank 1 shows no all-reduces of gradients"),
        (RepeatedReductions(0, 1, (MIB,), STEP_S / 20), "no smaller ones; what larger ones gain is not"),
    ],
)
def test_without_what_carries_them_no_buckets_are_proposed(
    reduced: RepeatedReductions | None, words: str
) -> None:
    found = told(bound(reduced), "bucket size")
    assert isinstance(found, Withheld) and words in found.reason


def test_a_job_that_communication_does_not_hold_back_keeps_its_buckets() -> None:
    report = reported(SPENT) | {"reductions": dataclasses.asdict(recorded(*STEP))}
    found = told(report, "bucket size")
    assert isinstance(found, Withheld) and "no finding says that communication" in found.reason


def roomy(peak_gib: float, *findings: Finding) -> dict[str, Any]:
    """A job whose fullest rank has this peak of 80 GiB."""

    def change(rank: int, window: int, row: Any) -> Any:
        peak = peak_gib * GIB if rank == 1 else GIB
        return row._replace(memory_peak_bytes=peak, memory_limit_bytes=80 * GIB, samples=16 * row.steps)

    return reported(SPENT, *findings, newest=watched(job(4, change=change))[-1])


def test_small_kernels_and_free_memory_speak_for_larger_micro_batches() -> None:
    found = told(roomy(30.0, SMALL), "micro-batch")
    assert isinstance(found, Proposal) and found.at_most and found.confidence == 0.8
    assert found.gain_ratio == pytest.approx(0.5 * 0.9), "half of the launches are left"
    assert "rank 1, the fullest, has a peak of 30 of 80 GiB, 16 samples of a step" in found.reason


def test_full_memory_or_steps_of_one_size_speak_for_none() -> None:
    full, alone = told(roomy(60.0, SMALL), "micro-batch"), told(roomy(30.0), "micro-batch")
    assert (
        isinstance(full, Withheld)
        and "a peak of 60 of 80 GiB: twice the micro-batch may not fit" in full.reason
    )
    assert isinstance(alone, Withheld) and "all steps are alike" in alone.reason
    assert "a peak of 30 of 80 GiB" in alone.reason
    unknown = told(reported(SPENT, SMALL), "micro-batch")
    assert isinstance(unknown, Withheld) and "the report has no 'memory'" in unknown.reason


def test_ranks_without_a_limit_of_memory_have_no_room_that_is_known() -> None:
    (window, *_) = job(2, 1)
    assert memory_room(tabulate(window, None)) is None
