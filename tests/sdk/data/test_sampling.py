from __future__ import annotations

import pytest
import torch

from holdfast import SessionError
from holdfast.data import sampling

GOLDEN = [634, 174, 378, 890, 76, 14, 268, 883, 536, 416]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 48, 49, 50, 1000, 4097])
def test_every_epoch_is_another_permutation(n: int) -> None:
    first = sampling.indices(n, 0, n, seed=5)
    second = sampling.indices(n, n, n, seed=5)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(n))
    assert n < 7 or not torch.equal(first, second)
    assert n < 7 or not torch.equal(first, sampling.indices(n, 0, n, seed=6))


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_the_ranks_shares_are_the_global_batch(world_size: int) -> None:
    whole = sampling.indices(101, 7 * 64, 64, seed=1)
    shares = [sampling.share(64, rank, world_size) for rank in range(world_size)]
    parts = [sampling.indices(101, 7 * 64 + part.start, len(part), seed=1) for part in shares]
    assert torch.equal(torch.cat(parts), whole)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_small_and_large_shares_come_from_the_same_order() -> None:
    singles = [int(sampling.indices(1000, place, 1, seed=9)) for place in range(300)]
    assert sampling.indices(1000, 0, 300, seed=9).tolist() == singles


@pytest.mark.parametrize(("n", "batch"), [(1000, 64), (1000, 1000), (7, 64), (5000, 3000), (100_000, 16)])
def test_what_is_worked_out_ahead_is_the_same_order(n: int, batch: int) -> None:
    """Steps one after the other, again, back and far ahead; another share and another seed."""
    ahead = sampling.Ahead()
    for seed, rank in ((1, 0), (1, 2), (2, 2)):
        places = sampling.share(batch, rank, 3)
        for step in (0, 1, 2, 2, 70, 71, 3, 10_000_000):
            taken = ahead.take(n, step, batch, places, seed)
            assert torch.equal(taken, sampling.indices(n, step * batch + places.start, len(places), seed))
            taken.zero_()  # the caller's own


def test_a_rank_without_a_share_takes_nothing() -> None:
    assert sampling.Ahead().take(10, 5, 2, sampling.share(2, 0, 3), 0).shape == (0,)


def test_the_order_is_the_one_of_every_release() -> None:
    """A job may be continued by a newer release: its samples must not be dealt anew."""
    assert sampling.indices(1000, 995, 10, seed=3).tolist() == GOLDEN


def test_neighbours_are_no_neighbours() -> None:
    order = sampling.indices(20_000, 0, 20_000, seed=0).double()
    pair = torch.stack([order[1:], order[:-1]])
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.03
    gaps = torch.histc((order[1:] - order[:-1]).remainder(20_000), bins=20, min=0, max=20_000)
    assert float(gaps.min()) > 600, "1000 expected in each"


@pytest.mark.parametrize(("n", "batch"), [(0, 4), (4, 0), (-1, 4), (True, 4), (4, "8"), (1 << 61, 4)])
def test_sizes_that_cannot_be_are_named(n: int, batch: int) -> None:
    with pytest.raises(SessionError, match="must be an integer of 1 or more"):
        sampling.check(n, batch)
