"""Naming who did not arrive, from where ranks stand."""

from __future__ import annotations

from controlplane.core.failures.arrivals import find
from controlplane.core.records.model import Collective, Standing


def stand(
    rank: int,
    *groups: tuple[str, int],
    step: int = 20,
    activity: str = "forward",
    ended: int = -1,
    silent_s: float = 0.0,
    at: str = "wait (train.py:41)",
    since_s: float = 60.0,
) -> Standing:
    collectives = tuple(Collective(name, sequence, ended, "gloo:all_reduce", 64) for name, sequence in groups)
    return Standing(
        f"j.{rank}", rank, step, activity, since_s, True, collectives, (at,) if at else (), silent_s=silent_s
    )


def test_the_rank_with_fewer_collectives_is_named_with_what_the_others_wait_in() -> None:
    found = find([stand(0, ("dp", 57)), stand(1, ("dp", 57)), stand(2, ("dp", 56)), stand(3, ("dp", 57))])
    assert found.ranks == (2,)
    assert "it entered 56, ranks 0, 1, 3 wait in collective 57 (gloo:all_reduce, 64 bytes)" in found.reason


def test_several_may_be_missing() -> None:
    ranks = [stand(rank, ("dp", 9 if rank in (3, 5) else 10)) for rank in range(8)]
    assert find(ranks).ranks == (3, 5)
    assert "6 ranks wait" in find(ranks).reason


def test_who_is_late_because_it_waits_for_another_group_is_not_named() -> None:
    """Pipeline: 0 waits for 1 in group a, 1 waits for 2 in group b; 2 is where it all begins."""
    ranks = [
        stand(0, ("a", 8), ("dp", 3)),
        stand(1, ("a", 7), ("b", 5), ("dp", 3)),
        stand(2, ("b", 4), ("dp", 3)),
        stand(3, ("dp", 3)),
    ]
    assert find(ranks).ranks == (2,)


def test_a_circle_of_waits_names_nobody() -> None:
    ranks = [stand(0, ("a", 8), ("b", 4)), stand(1, ("a", 7), ("b", 5))]
    assert find(ranks).ranks == ()


def test_steps_tell_where_collectives_do_not() -> None:
    ranks = [stand(rank, step=19 if rank == 1 else 20) for rank in range(4)]
    assert find(ranks).ranks == (1,)
    assert "it is in step 19" in find(ranks).reason


def test_the_only_one_outside_of_any_collective_is_named() -> None:
    ranks = [stand(rank, ("dp", 9), ended=9 if rank == 2 else 8) for rank in range(4)]
    assert find(ranks).ranks == (2,)


def test_the_only_one_that_does_something_else_is_named() -> None:
    ranks = [stand(rank, ("dp", 9), activity="optimizer" if rank == 0 else "forward") for rank in range(4)]
    assert find(ranks).ranks == (0,)
    assert find(ranks).reason == "it is in optimizer, all others are in forward"


def test_when_all_stand_at_the_same_place_nobody_is_named() -> None:
    assert find([stand(rank, ("dp", 9)) for rank in range(4)]).ranks == ()


def test_when_most_would_be_to_blame_nobody_is() -> None:
    ranks = [stand(rank, ("dp", 9 if rank else 10)) for rank in range(4)]
    assert find(ranks).ranks == ()


def test_a_single_rank_is_the_one() -> None:
    assert find([stand(0)]).ranks == (0,)


def test_a_silent_rank_is_named_before_who_waits_for_it_in_another_group() -> None:
    """3 shares the group tp with 2, whose interpreter is locked: so 3 is behind in dp, and not to blame."""
    ranks = [
        stand(0, ("dp0", 9), ("tp0", 5)),
        stand(1, ("dp1", 14), ("tp0", 5)),
        stand(2, silent_s=4.0),
        stand(3, ("dp1", 13), ("tp1", 5)),
    ]
    assert find(ranks).ranks == (2,)
    assert find(ranks).reason == "its interpreter has not answered for 4.0 s"


def test_silence_names_as_many_as_are_silent() -> None:
    ranks = [stand(rank, silent_s=5.0) if rank else stand(0, ("dp", 9)) for rank in range(3)]
    assert find(ranks).ranks == (1, 2)


def test_the_only_one_that_does_not_answer_is_named_where_nothing_else_tells() -> None:
    ranks = [stand(rank, *((("dp", 9),) if rank != 1 else ())) for rank in range(4)]
    assert find(ranks).ranks == (1,)
    assert find(ranks).reason == "it does not answer, ranks 0, 2, 3 wait in a collective"


def test_when_nobody_tells_of_a_group_nobody_is_mute() -> None:
    assert find([stand(rank) for rank in range(4)]).ranks == ()


def slow(entered: int, at: str) -> list[Standing]:
    """One reading of four ranks that only are slow: rank 2 was read first, and by then it was in an older
    collective than those who were read later."""
    return [stand(rank, ("dp", 57)) for rank in (0, 1)] + [
        stand(2, ("dp", entered), at=at),
        stand(3, ("dp", 57)),
    ]


def test_a_rank_that_was_read_before_its_peers_and_has_come_since_is_not_named() -> None:
    first, second = slow(56, "forward (model.py:7)"), slow(57, "wait (train.py:41)")
    assert find(first).ranks == (2,), "one reading accuses it"
    found = find(first, second)
    assert found.ranks == ()
    assert found.reason.startswith(
        "undetermined: rank 2 seemed to be behind (it entered 56, ranks 0, 1, 3 wait"
    )
    assert found.reason.endswith("it has entered 57 of group dp since")


def test_what_the_second_reading_shows_again_is_named_wherever_the_rank_computes() -> None:
    """It retries in a loop of its own, so its frames change: all the same it has not come."""
    first, second = slow(56, "read (data.py:7)"), slow(56, "retry (data.py:9)")
    assert find(first, second) == find(first)


def test_a_mark_of_its_progress_page_shows_that_it_goes_on() -> None:
    first = [stand(rank, step=19 if rank == 1 else 20) for rank in range(4)]
    second = [
        stand(rank, step=19 if rank == 1 else 20, since_s=0.1 if rank == 1 else 61.0) for rank in range(4)
    ]
    assert find(first, second).ranks == ()
    assert "it has made progress 0.1 s ago" in find(first, second).reason
    assert find(first, first).ranks == (1,)


def doing(at: str, activity: str = "optimizer") -> list[Standing]:
    """Rank 0 is the only one with its activity."""
    return [
        stand(rank, ("dp", 9), activity="forward" if rank else activity, at="x (train.py:1)" if rank else at)
        for rank in range(4)
    ]


def test_a_rank_that_was_elsewhere_for_a_moment_is_not_named_by_where_it_stood() -> None:
    first = doing("step (adam.py:10)")
    assert find(first, doing("step (adam.py:10)")).ranks == (0,)
    found = find(first, doing("step (adam.py:90)"))
    assert found.ranks == ()
    assert "it was at step (adam.py:10), and is at step (adam.py:90)" in found.reason
    assert (
        "it was in optimizer, and is in forward" in find(first, doing("step (adam.py:10)", "forward")).reason
    )


def test_a_silent_rank_that_answers_the_second_time_is_not_named() -> None:
    first = [stand(rank, ("dp", 9)) if rank else stand(0, silent_s=4.0) for rank in range(3)]
    assert find(first, first).ranks == (0,)
    found = find(first, [stand(rank, ("dp", 9)) for rank in range(3)])
    assert found.ranks == () and found.reason.endswith("it has answered since")


def test_a_rank_that_was_not_read_again_is_not_named() -> None:
    first = slow(56, "forward (model.py:7)")
    found = find(first, [each for each in first if each.rank != 2])
    assert found.ranks == () and found.reason.endswith("it was not read again")
    alone = [stand(0)]
    assert find(alone, []).ranks == (0,), "nobody else was read at another moment"


def test_of_several_those_are_named_that_have_not_moved() -> None:
    first = [stand(rank, ("dp", 9 - (rank == 5) if rank in (3, 5) else 10)) for rank in range(8)]
    second = [stand(rank, ("dp", 8 if rank == 5 else 10)) for rank in range(8)]
    found = find(first, second)
    assert found.ranks == (5,)
    assert found.reason.startswith("it entered 8,") and "rank 3 seemed to be behind, too" in found.reason
