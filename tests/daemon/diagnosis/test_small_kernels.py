"""A profile that shows small kernels is a notice of its job, until a better one or another process."""

from __future__ import annotations

from typing import Any

from controlplane.core.records.diagnosis import OperatorTime, RankProfiled
from tests.daemon.diagnosis.stage import Stage

RANK = 2


def profile(stage: Stage, device_s: float, calls: int = 10_000, member: str = "") -> None:
    """Have rank 2 answer with a profile of one operator, in 1 s of CPU time."""
    job = stage.play.cluster.state.jobs["j"]
    (seat,) = [seat for seat in job.seats if seat.rank == RANK]
    member = member or seat.member
    operators = (OperatorTime("add", calls, 1.0, device_s),)
    answer = RankProfiled(seat.node, 1, "j", member, "7-1", 1, "", "/t", 9, 40, 5, 1.0, device_s, operators)
    stage.diagnosis.take_profile(RANK, answer)


def found(stage: Stage) -> list[dict[str, Any]]:
    return [row for row in stage.report_of()["findings"] if row["kind"] == "small_kernels"]


async def test_it_is_shown_at_once_as_a_notice_and_alerts_nobody() -> None:
    stage = Stage()
    profile(stage, 0.03)
    await stage.windows(1)
    (row,) = found(stage)
    assert (row["severity"], row["about"], row["subject"]["rank"]) == ("notice", "nobody in particular", None)
    assert "rank 2, steps 40 to 44, 10000 operators took 3 us each" in row["reason"]
    assert "torch.compile" in row["recommendation"] and row["recommendations"][0]["gain_ratio"] == 0.94
    assert stage.posted == [], "it is no ill health"
    await stage.windows(30)
    assert len(found(stage)) == 1, "it stays open while the process trains"
    assert [body["outcome"] for kind, body in stage.written if kind == "FindingChanged"] == ["opened"]


async def test_a_later_profile_of_the_rank_resolves_it_and_one_that_shows_nothing_does_not() -> None:
    stage = Stage()
    profile(stage, 0.03)
    await stage.windows(1)
    profile(stage, 0.03, calls=3)  # too few to judge
    await stage.windows(20)
    assert len(found(stage)) == 1
    profile(stage, 0.9)
    await stage.windows(20)
    assert found(stage) == []
    assert [row["kind"] for row in stage.report_of()["resolved"]] == ["small_kernels"]


async def test_a_profile_of_a_process_that_was_replaced_says_nothing_of_the_next() -> None:
    stage = Stage()
    profile(stage, 0.03, member="another")
    await stage.windows(3)
    assert found(stage) == []


async def test_without_diagnosis_nothing_is_kept() -> None:
    stage = Stage(every_s=0.0)
    profile(stage, 0.03)
    await stage.diagnosis.look()
    assert found(stage) == []


async def test_a_profile_of_a_job_that_was_never_judged_is_forgotten_with_the_job() -> None:
    stage = Stage()
    profile(stage, 0.03)
    assert stage.diagnosis._jobs
    stage.play.do("stop over", "stored")
    await stage.diagnosis.look()
    assert not stage.diagnosis._jobs
