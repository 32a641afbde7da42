"""The leader has flight records judged: the core gets a verdict in any case, people get findings."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from controlplane.core.records.effects import JudgeRecords
from controlplane.core.records.model import Standing
from controlplane.daemon.diagnosis.flight_records import FlightJudging, kernel_state
from holdfast.ipc import traces
from tests.analysis.flight_records.test_packed import pack
from tests.daemon.diagnosis.stage import Stage

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import RecordsJudged
    from controlplane.core.state.findings import Finding

WORLD = [0, 1, 2, 3]
OPEN_AT = 3


def record(calls: int, size: int = 1, ended: int = OPEN_AT - 1) -> str:
    """What a rank sends that has called so many collectives, of which so many have ended."""
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number + 1,
            "op_id": number + 1,
            "profiling_name": "gloo:all_reduce",
            "state": "scheduled",
            "retired": number < ended,
            "time_created_ns": 1_000_000 + number,
            "input_sizes": [[size if number + 1 == OPEN_AT else 1]],
            "input_dtypes": ["Float"],
            "frames": [{"filename": "train.py", "name": "step", "line": 40 + number}],
        }
        for number in range(calls)
    ]
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": WORLD}}
    return pack({"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries})


def standing(rank: int, text: str, **changed: Any) -> Standing:
    found = Standing(
        f"j.{rank}",
        rank,
        20,
        "forward",
        60.0,
        stalled=True,
        frames=("wait (train.py:9)",),
        flight_record=text,
    )
    return dataclasses.replace(found, **changed)


async def judged(
    ranks: list[Standing], *, broke: bool = False, again: list[Standing] | None = None
) -> tuple[RecordsJudged, list[Finding]]:
    """What is said of these reports. `again`: of the second reading; None: nothing has moved."""
    posted: list[RecordsJudged] = []
    reported: list[Finding] = []
    over = asyncio.Event()  # findings are reported last, and only of records that could be judged

    def post(event: RecordsJudged) -> None:
        posted.append(event)
        if event.trouble:
            over.set()

    async def report(_: str, findings: Any) -> None:
        reported.extend(findings)
        over.set()

    judging = FlightJudging(post, report)
    later = () if broke else tuple(ranks if again is None else again)
    judging.judge(JudgeRecords("j", 4, 7, tuple(ranks), broke, later))
    await over.wait()
    await judging.close()
    (event,) = posted
    assert (event.job, event.generation, event.round) == ("j", 4, 7)
    return event, reported


async def test_who_has_not_come_is_named_with_group_operation_and_stack() -> None:
    ranks = [standing(rank, record(OPEN_AT - (rank == 1))) for rank in WORLD]
    event, (found,) = await judged(ranks)
    assert [(each.rank, each.kind) for each in event.blamed] == [(1, "not_arrived")]
    assert event.blamed[0].confidence > 0.9
    evidence = dict(found.evidence)
    assert (found.kind, found.place, found.first_step) == ("not_arrived", (("rank", 1),), 20)
    assert (evidence["group"], evidence["operation"], evidence["sequence"]) == (
        "default_pg",
        "all_reduce",
        3.0,
    )
    assert (evidence["stack_top"], evidence["doing"]) == ("wait (train.py:9)", "forward")
    assert evidence["source"] == "train.py:42 (step)"


def test_what_the_kernel_shows_of_the_main_thread_is_evidence() -> None:
    own = traces.native(os.getpid())
    assert kernel_state(f"Python stacks\n{own}")[:2] in ("R ", "S "), own
    lines = "thread 812 (python) S (sleeping), in futex\nthread 97 (pt_main) D (disk sleep), in wchan nfs"
    assert kernel_state(lines) == "D (disk sleep), in wchan nfs"
    assert kernel_state("no Python stacks were received in time") == ""


async def test_a_rank_within_its_own_deadline_is_slow_and_not_accused() -> None:
    ranks = [standing(rank, record(OPEN_AT - (rank == 1)), stalled=rank != 1) for rank in WORLD]
    event, found = await judged(ranks)
    assert [each.rank for each in event.blamed] == [1], "the core knows deadlines itself"
    assert found == []


def with_rank_three(text: str, others: str) -> list[Standing]:
    return [standing(rank, text if rank == 3 else others) for rank in WORLD]


async def test_what_a_slow_rank_has_done_by_the_second_reading_is_not_held_against_it() -> None:
    """Its record was read first: its peers completed a collective, or called one, a moment later."""
    unfinished = with_rank_three(record(3, ended=2), record(3, ended=3))
    absent = with_rank_three(record(2), record(3))
    done = with_rank_three(record(3, ended=3), record(4, ended=3))
    for first in (unfinished, absent):
        event, found = await judged(first, again=done)
        assert (event.blamed, found) == ((), [])


async def test_what_a_rank_still_lacks_in_the_second_reading_is_held_against_it() -> None:
    went_on = record(4, ended=3)
    unfinished = with_rank_three(record(3, ended=2), record(3, ended=3))
    event, (found,) = await judged(unfinished, again=with_rank_three(record(3, ended=2), went_on))
    assert [(each.rank, each.kind) for each in event.blamed] == [(3, "unfinished")]
    assert found.place == (("rank", 3),)
    event, _ = await judged(with_rank_three(record(2), record(3)))
    assert [(each.rank, each.kind) for each in event.blamed] == [(3, "not_arrived")]


async def test_a_rank_that_was_not_read_again_is_not_blamed() -> None:
    first = with_rank_three(record(2), record(3))
    for again in ([], first[:3], with_rank_three("", record(3)), with_rank_three("?", record(3))):
        event, found = await judged(first, again=again)
        assert (event.blamed, found) == ((), [])


async def test_a_rank_without_a_record_is_blamed_only_while_all_others_stand() -> None:
    first = with_rank_three("", record(3))
    event, _ = await judged(first)
    assert [(each.rank, each.kind) for each in event.blamed] == [(3, "no_dump")]
    one_went_on = [*first[:2], standing(2, record(3, ended=3)), first[3]]
    assert (await judged(first, again=one_went_on))[0].blamed == ()


async def test_different_calls_need_no_second_reading() -> None:
    first = [standing(rank, record(3, 1024 if rank == 1 else 1)) for rank in WORLD]
    event, _ = await judged(first, again=[])
    assert [(each.rank, each.kind) for each in event.blamed] == [(1, "other_shape")]


async def test_after_a_break_only_differences_count() -> None:
    late = [standing(rank, record(OPEN_AT - (rank == 1))) for rank in WORLD]
    assert (await judged(late, broke=True))[0].blamed == ()
    assert (await judged(late, broke=True))[1] == []
    odd = [standing(rank, record(OPEN_AT, 1024 if rank == 1 else 1)) for rank in (1, 2, 3)]
    event, (found,) = await judged(odd, broke=True)
    assert [(each.rank, each.kind) for each in event.blamed] == [(1, "other_shape")]
    assert "[1024]" in found.reason


async def test_absent_and_unreadable_records_are_missing_and_the_others_are_judged() -> None:
    ranks = [standing(rank, record(OPEN_AT - (rank == 1))) for rank in (0, 1)]
    event, _ = await judged([*ranks, standing(2, ""), standing(3, "no record")])
    assert [(each.rank, each.kind) for each in event.blamed] == [(1, "not_arrived")]


async def test_records_of_two_ranks_that_differ_blame_nobody() -> None:
    event, found = await judged([standing(0, record(3)), standing(1, record(3, 1024)), standing(2, "")])
    assert (event.blamed, event.trouble, found) == ((), "", [])


async def test_garbage_alone_is_answered_with_no_blame() -> None:
    event, found = await judged([standing(0, "?"), standing(1, record(3)[:30]), standing(2, pack([]))])
    assert (event.blamed, found) == ((), [])


async def test_a_finding_of_one_event_opens_and_is_told_at_once() -> None:
    stage = Stage()
    ranks = [standing(rank, record(OPEN_AT - (rank == 1))) for rank in WORLD]
    _, findings = await judged(ranks)
    await stage.diagnosis.report_now("j", findings)
    assert [each.kind for each in stage.posted[-1].findings] == ["not_arrived"]
    assert [body["outcome"] for _, body in stage.written] == ["opened"]
    assert len(stage.kept) == 1
    (row,) = stage.report_of()["findings"]
    assert (row["kind"], row["subject"], row["evidence"]["group"]) == (
        "not_arrived",
        {"rank": 1},
        "default_pg",
    )
    await stage.diagnosis.report_now("j", [])
    assert len(stage.posted) == 1
    await stage.windows(20)
    assert stage.posted[-1].findings == ()
