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
) -> Standing:
    collectives = tuple(Collective(name, sequence, ended, "gloo:all_reduce", 64) for name, sequence in groups)
    return Standing(
        f"j.{rank}", rank, step, activity, 60.0, stalled=True, collectives=collectives, silent_s=silent_s
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
