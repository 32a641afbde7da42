"""Copies between tensors: by one thread for a snapshot, by several for a restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from holdfast.state import copying

Copy = Callable[[Sequence[copying.Pair]], None]

BOTH = pytest.mark.parametrize("copy", [copying.copy, copying.copy_at_once])
LARGE = (20 << 20) + 3  # three pieces, the last of odd size


def pair(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros_like(source), source


@BOTH
def test_every_byte_is_copied(copy: Copy) -> None:
    pairs = [
        pair(torch.randint(0, 256, (LARGE,), dtype=torch.uint8)),
        pair(torch.randn(1500, 1500)),
        pair(torch.randn(7)),
        pair(torch.tensor(3.0)),
        pair(torch.empty(0)),
        pair(torch.randn(9000).to(torch.bfloat16)),
    ]
    copy(pairs)
    assert all(torch.equal(target, source) for target, source in pairs)


@BOTH
def test_what_is_no_run_of_bytes_is_copied_too(copy: Copy) -> None:
    target, source = torch.zeros(4000, 3000), torch.randn(3000, 4000).t()
    other = torch.randn(2000, 2000)
    pairs = [(target, source), (torch.zeros(2000, 4000)[:, ::2], other)]
    copy([*pairs, pair(torch.randn(3 << 20))])
    assert torch.equal(target, source)
    assert torch.equal(pairs[1][0], other)


@BOTH
def test_autograd_is_told_of_every_tensor_once(copy: Copy) -> None:
    pairs = [pair(torch.randn(5 << 20)), pair(torch.randn(3))]
    before = [target._version for target, _ in pairs]
    copy(pairs)
    assert [target._version for target, _ in pairs] == [version + 1 for version in before]


@BOTH
def test_a_parameter_is_filled_in_place(copy: Copy) -> None:
    parameter, source = torch.nn.Parameter(torch.zeros(3 << 20)), torch.randn(3 << 20)
    address = parameter.data_ptr()
    copy([(parameter, source), pair(torch.randn(3 << 20))])
    assert torch.equal(parameter, source)
    assert parameter.data_ptr() == address


@BOTH
def test_of_targets_that_share_memory_the_last_wins_as_a_whole(copy: Copy) -> None:
    shared = torch.zeros(12 << 20)
    first, last = torch.ones(8 << 20), torch.full((8 << 20,), 2.0)
    copy([(shared[: 8 << 20], first), (shared[4 << 20 :], last)])
    assert torch.equal(shared[: 4 << 20], first[: 4 << 20])
    assert torch.equal(shared[4 << 20 :], last)


@BOTH
def test_nothing_to_copy_is_no_error(copy: Copy) -> None:
    copy([])
