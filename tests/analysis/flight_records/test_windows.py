"""What is not in the dumps: rings that have wrapped, dumps of open operations only, ranks without a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.flight_records import policy
from tests.analysis.flight_records.made import MadeDump, judge, judged, named, unsure, world

if TYPE_CHECKING:
    from controlplane.analysis.flight_records.diagnosis import FlightDiagnosis


def why(found: FlightDiagnosis) -> dict[int, str]:
    return {each.rank: each.why.value for each in found.missing}


def behind(ranks: int = 5, *, absent: tuple[int, ...] = (), late: int = 2) -> list[MadeDump]:
    """All but one rank are in the second collective; some have no dump."""
    dumps = world(ranks)
    for dump in dumps:
        dump.call("all_reduce", "0")
        if dump.rank != late:
            dump.call("all_reduce", "0", done=False)
    return [dump for dump in dumps if dump.rank not in absent]


def test_a_call_before_the_window_of_the_ring_is_not_taken_as_missing() -> None:
    dumps = world(3, pair=[0, 1])
    for dump in dumps:
        for _ in range(6):
            dump.call("all_reduce", "0")
        if dump.rank < 2:
            dump.call("all_reduce", "pair", done=dump.rank == 1)
    dumps[1].call("all_reduce", "0").call("all_reduce", "0")
    dumps[1].entries = dumps[1].entries[-2:]
    found = judged(dumps)
    assert 1 not in named(found) or named(found)[1] != "not_arrived"


def test_a_group_that_has_fallen_out_of_the_ring_is_not_known() -> None:
    dumps = world(3, pair=[1, 2])
    for dump in dumps:
        dump.call("all_reduce", "0")
    dumps[0].call("all_reduce", "0", done=False)
    dumps[1].call("all_reduce", "0", done=False)
    for _ in range(4):
        dumps[2].call("all_reduce", "pair")
        dumps[1].call("all_reduce", "pair")
    dumps[2].entries = dumps[2].entries[-2:]
    found = judged(dumps)
    assert found.culprits[0].rank == 2 and found.culprits[0].confidence == policy.BY_ABSENCE
    assert "do not reach there" in found.culprits[0].reason


def test_counters_decide_where_the_ring_does_not() -> None:
    dumps = world(3, pair=[1, 2])
    for dump in dumps:
        dump.call("all_reduce", "0")
    dumps[0].call("all_reduce", "0", done=False)
    dumps[1].call("all_reduce", "0", done=False)
    for _ in range(4):
        dumps[2].call("all_reduce", "pair")
    dumps[2].entries = dumps[2].entries[-2:]
    dumps[2].status = {"0": {"last_enqueued_collective": 1, "last_completed_collective": 1}}
    (culprit,) = judged(dumps).culprits
    assert (culprit.rank, culprit.kind, culprit.confidence) == (2, "not_arrived", policy.CERTAIN)


def test_dumps_of_open_operations_only() -> None:
    """The rank with nothing open has an empty dump; torch's counters say that it has ended all it called."""
    dumps = behind()
    for dump in dumps:
        dump.entries = [each for each in dump.entries if each["state"] != "completed"]
    dumps[2].status = {"0": {"last_enqueued_collective": 1, "last_completed_collective": 1}}
    found = judged(dumps)
    assert named(found) == {2: "not_arrived"} and why(found) == {2: "empty"}


def test_a_rank_without_a_dump_for_which_all_wait_is_named_with_the_doubt() -> None:
    found = judged(behind(absent=(2,)))
    assert named(found) == {2: "no_dump"} and why(found) == {2: "absent"} and unsure(found) == []
    assert "cannot be excluded" in found.culprits[0].reason
    assert found.culprits[0].confidence == policy.BY_ABSENCE


def test_a_chain_of_waits_that_ends_at_a_rank_without_a_dump() -> None:
    dumps = world(4, a=[0, 1], b=[1, 2], c=[2, 3])
    for rank, group in ((0, "a"), (1, "b"), (2, "c")):
        dumps[rank].call("all_reduce", group, done=False)
    found = judged(dumps[:3])
    assert named(found) == {3: "no_dump"} and unsure(found) == []
    assert "All 3 ranks that wait" in found.culprits[0].reason


def test_a_lost_dump_beside_a_culprit_is_undetermined() -> None:
    found = judged(behind(absent=(4,)))
    assert named(found) == {2: "not_arrived"} and unsure(found) == [4]


def test_two_ranks_without_dumps_are_undetermined() -> None:
    found = judged(behind(absent=(2, 4)))
    assert named(found) == {} and unsure(found) == [2, 4]


def test_one_rank_that_waits_for_one_without_a_dump_convicts_nobody() -> None:
    found = judged(behind(2, absent=(1,), late=1))
    assert named(found) == {} and unsure(found) == [1]


def test_an_empty_dump_without_counters_is_as_an_absent_one() -> None:
    dumps = behind()
    dumps[4].entries = []
    found = judged(dumps)
    assert named(found) == {2: "not_arrived"} and unsure(found) == [4] and why(found) == {4: "empty"}


@pytest.mark.parametrize(("hours", "stale"), [(0.25, False), (1.0, True), (-1.0, True)])
def test_a_dump_of_another_time_is_stale(hours: float, stale: bool) -> None:
    dumps = behind()
    for each in dumps[4].entries:
        each["time_created_ns"] -= int(hours * 3600e9)
    found = judged(dumps)
    assert why(found) == ({4: "stale"} if stale else {})
    assert named(found) == {2: "not_arrived"} and unsure(found) == ([4] if stale else [])


def test_the_longest_timeout_of_the_dumps_counts_if_it_is_longer() -> None:
    dumps = behind()
    for dump in dumps:
        for each in dump.entries:
            each["timeout_ms"] = 2 * 3600 * 1000
    for each in dumps[2].entries:
        each["time_created_ns"] -= int(3600e9)
    found = judged(dumps)
    assert named(found) == {2: "not_arrived"} and why(found) == {}


def test_a_dump_of_a_run_of_another_size_is_stale() -> None:
    dumps = behind()
    dumps[4].groups["0"] = ("default_pg", list(range(8)))
    found = judged(dumps)
    assert why(found) == {4: "stale"} and "run of 8 ranks" in found.missing[0].reason


def test_entries_in_any_order_say_the_same() -> None:
    dumps = behind()
    straight = judged(dumps)
    for dump in dumps:
        dump.entries.reverse()
    assert judge((dump.rank, dump.document()) for dump in reversed(dumps)).culprits == straight.culprits
