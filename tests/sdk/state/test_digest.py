"""Digests tell two states apart that differ in one bit, in order or in sign, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from holdfast import SessionError
from holdfast.state import digest
from holdfast.state.claims import Claim
from holdfast.state.digest import weigh

if TYPE_CHECKING:
    from collections.abc import Callable


def on_host(*tensors: torch.Tensor) -> int:
    return digest.of(digest.cut(tensors, 0, sum(tensor.nbytes for tensor in tensors)))


def as_on_device(*tensors: torch.Tensor) -> int:
    joined = torch.cat([tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors])
    return digest.number(str(weigh(joined).tolist()).encode())


WAYS: list[Callable[..., int]] = [on_host, as_on_device]


@pytest.mark.parametrize("way", WAYS)
def test_what_differs_is_told_apart(way: Callable[..., int]) -> None:
    block = torch.randn(300, 400, generator=torch.Generator().manual_seed(1))
    rows = block.clone()
    rows[[3, 250]] = rows[[250, 3]]
    bit = block.clone()
    bit.view(torch.int32)[17, 5] ^= 1
    signs = torch.zeros(70_000)
    signs[5] = -0.0
    moved = torch.zeros(70_000)
    moved[65_000] = -0.0
    found = [way(block), way(rows), way(bit), way(signs), way(moved), way(torch.zeros(70_000))]
    assert len(set(found)) == len(found)
    assert way(block[:150], block[150:]) == way(block) == way(block.clone())


@pytest.mark.parametrize("way", WAYS)
def test_nan_is_equal_by_its_bits(way: Callable[..., int]) -> None:
    quiet, other = torch.full((9,), float("nan")), torch.full((9,), float("nan"))
    assert way(quiet) == way(other)
    other.view(torch.int32)[2] ^= 1
    assert way(quiet) != way(other)


def test_order_in_memory_does_not_matter() -> None:
    block = torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(2))
    assert on_host(block.to(memory_format=torch.channels_last)) == on_host(block)


def test_slices_cover_all_bytes_once() -> None:
    tensors = [torch.arange(10.0), torch.empty(0), torch.arange(7, dtype=torch.int64), torch.tensor(True)]
    total = sum(tensor.nbytes for tensor in tensors)
    for size in (1, 7, 40, 1000):
        seen = []
        for start in range(0, total, size):
            for tensor, first, last in digest.cut(tensors, start, start + size):
                seen.append(digest.memory(tensor)[first:last].tobytes())
        assert b"".join(seen) == b"".join(digest.memory(tensor).tobytes() for tensor in tensors)


def test_a_view_that_is_kept_shows_what_is_written_later() -> None:
    tensor, views = torch.zeros(5), dict[int, memoryview]()
    before = digest.of([(tensor, 0, 20)], views)
    tensor[3] = 1
    assert digest.of([(tensor, 0, 20)], views) != before


@pytest.mark.parametrize(
    ("per_rank", "shard", "from_rank_0", "words"),
    [
        (torch.nn.Linear(1, 1), "", False, "per_rank and from_rank_0 must be True or False"),
        (False, "no name", False, "is not a valid name"),
        (True, "expert", False, "exclude each other"),
    ],
)
def test_what_cannot_be_claimed_is_refused(
    per_rank: object, shard: str, from_rank_0: bool, words: str
) -> None:
    with pytest.raises(SessionError, match=words):
        Claim.of(per_rank, shard, from_rank_0)
