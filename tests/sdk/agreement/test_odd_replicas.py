"""Who differs is a question of majority, and of nothing else."""

from __future__ import annotations

import pytest

from holdfast.agreement import odd_replicas


@pytest.mark.parametrize(
    ("numbers", "odd"),
    [
        ({0: 1, 1: 1, 2: 7}, (2,)),
        ({0: 7, 1: 1, 2: 1, 5: 1}, (0,)),
        ({0: 1, 1: 7, 2: 1, 3: 8, 4: 1}, (1, 3)),
        ({0: 1, 1: 2}, ()),
        ({0: 1}, ()),
        ({0: 1, 1: 2, 2: 3}, ()),
        ({0: 1, 1: 1, 2: 2, 3: 2}, ()),
        ({0: 1, 1: 1, 2: 1}, ()),
    ],
)
def test_the_odd_one_is_who_differs_from_more_than_half(
    numbers: dict[int, object], odd: tuple[int, ...]
) -> None:
    assert odd_replicas.odd(numbers) == odd


def test_ranks_are_compared_with_those_that_claim_the_same_and_with_nobody_else() -> None:
    rows = [[5, 1, 0, 9], [5, 1, 6, 2], [5, 2, 7, 3], [0, 4, 7, 3]]
    found = odd_replicas.claims(rows)
    assert found == {5: {0: 1, 1: 1, 2: 2}, 6: {1: 2}, 7: {2: 3, 3: 3}}
    assert odd_replicas.differing(found) == {5} and odd_replicas.alone(found) == {6}


def test_what_differs_is_named_with_the_digests_of_the_odd_first() -> None:
    same = {"1": {"model.a": ["float32 [2]", "aa"], "model.b": ["float32 [2]", "bb"]}}
    spoiled = {"1": {"model.a": ["float32 [2]", "aa"], "model.b": ["float32 [2]", "cc"]}}
    seen = odd_replicas.judge([same, same, spoiled, {}])
    assert (seen.ranks, seen.odd, seen.tensors, seen.more) == ((0, 1, 2), (2,), ("model.b",), 0)
    assert seen.digests == ("rank 2: cc", "rank 0: bb", "rank 1: bb")


def test_a_tensor_that_one_rank_does_not_have_differs_there() -> None:
    held = {"1": {"optimizer.state.3.exp_avg": ["", "aa"]}}
    seen = odd_replicas.judge([held, {"1": {}}, held])
    assert seen.odd == (1,) and seen.digests[0] == "rank 1: missing"


def test_many_tensors_are_counted_and_few_are_named() -> None:
    left = {"1": {f"t{index}": ["", "a"] for index in range(9)}}
    right = {"1": {f"t{index}": ["", "b"] for index in range(9)}}
    seen = odd_replicas.judge([left, right])
    assert seen.odd == () and len(seen.tensors) == odd_replicas.TENSORS_MAX and seen.more == 4
