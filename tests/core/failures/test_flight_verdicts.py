"""Flight records against stack reports: silence first, then certain records, then the reports."""

from __future__ import annotations

from controlplane.core.failures.flight_verdicts import CERTAIN_MIN, weigh
from controlplane.core.records.diagnosis import BlamedByRecords, RecordsJudged
from tests.core.failures.test_arrivals import stand

BEHIND = [stand(0, ("dp", 57)), stand(1, ("dp", 57)), stand(2, ("dp", 56)), stand(3, ("dp", 57))]
LEVEL = [stand(rank, ("dp", 57)) for rank in range(4)]


def judged(*blamed: tuple[int, float]) -> RecordsJudged:
    each = (BlamedByRecords(rank, "not_arrived", sure, f"why {rank}") for rank, sure in blamed)
    return RecordsJudged("j", 1, 1, tuple(each))


def test_without_a_judgement_the_stack_reports_decide() -> None:
    assert weigh(BEHIND, None).ranks == (2,)
    assert weigh(BEHIND, RecordsJudged("j", 1, 1, trouble="it raised an error")).ranks == (2,)


def test_certain_records_win_and_say_what_the_reports_alone_would_have_said() -> None:
    found = weigh(BEHIND, judged((1, 0.95)))
    assert found.ranks == (1,)
    assert "why 1" in found.reason
    assert "by stack reports alone it would have been 2" in found.reason


def test_records_that_agree_are_the_reason() -> None:
    found = weigh(BEHIND, judged((2, 0.95)))
    assert found.ranks == (2,)
    assert "alone" not in found.reason


def test_records_name_a_rank_where_the_reports_name_nobody() -> None:
    assert weigh(LEVEL, None).ranks == ()
    assert weigh(LEVEL, judged((3, 0.95))).ranks == (3,)


def test_what_records_only_suggest_is_reported_and_blames_nobody() -> None:
    found = weigh(LEVEL, judged((3, CERTAIN_MIN - 0.01)))
    assert found.ranks == ()
    assert "suggest rank 3" in found.reason
    assert weigh(BEHIND, judged((3, 0.8))).ranks == (2,)


def test_records_that_blame_more_than_half_decide_nothing() -> None:
    assert weigh(LEVEL, judged((0, 0.95), (1, 0.95), (2, 0.95))).ranks == ()


def test_a_silent_rank_is_to_blame_whatever_the_records_say() -> None:
    ranks = [*LEVEL[:3], stand(3, silent_s=4.0)]
    assert weigh(ranks, judged((0, 0.95))).ranks == (3,)
