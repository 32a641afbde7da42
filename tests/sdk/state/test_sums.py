"""Sums of 64 bits see every flipped bit, wherever it is, and do not depend on where tensors lie."""

from __future__ import annotations

import random

import pytest
import torch

from holdfast.state import sums

FORMS = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64]


def state(seed: int) -> list[torch.Tensor]:
    """Tensors of many sizes: single numbers, odd counts of bytes, more than one block, more than eight."""
    made = torch.Generator().manual_seed(seed)
    sizes = [(), (3,), (7, 5), (1 << 14,), (200, 301), (1 << 18,), (9 * (1 << 15) + 11,)]
    return [torch.randn(size, generator=made) for size in sizes] + [torch.randn(5).bfloat16(), torch.empty(0)]


@pytest.mark.parametrize("seed", range(3))
def test_every_single_bit_is_seen(seed: int) -> None:
    chance, tensors = random.Random(seed), state(seed)
    before = sums.of(tensors)
    for index, tensor in enumerate(tensors):
        if not tensor.numel():
            continue
        raw = tensor.view(-1).view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
        for bit in range(8):
            at = chance.randrange(raw.numel())
            raw[at] ^= 1 << bit
            assert sums.of(tensors) != before, (index, at, bit)
            raw[at] ^= 1 << bit
    assert sums.of(tensors) == before


def test_one_bit_changes_the_sum_by_an_odd_multiple_of_a_power_of_two() -> None:
    """So it can never vanish modulo 2^64: the claim of the module, taken literally."""
    words = torch.zeros(100_000, dtype=torch.int32)
    before = sums.of([words])
    for at, bit in ((0, 0), (99_999, 30), (40_000, 31), (70_000, 5)):
        words[at] = -(1 << 31) if bit == 31 else 1 << bit
        changed = (sums.of([words]) - before) % sums.MODULUS
        assert changed and changed & -changed == 1 << bit
        words[at] = 0


def test_what_changes_places_is_seen() -> None:
    tensors = state(1)
    rows = tensors[4].clone()
    rows[[3, 150]] = rows[[150, 3]]
    assert sums.of([rows]) != sums.of([tensors[4]])
    assert sums.of(tensors) != sums.of(tensors[::-1])
    zeros = torch.zeros(70_000)
    negative = zeros.clone()
    negative[5] = -0.0
    assert sums.of([zeros]) != sums.of([negative])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_and_any_layout_gives_the_sum_of_its_bits(form: torch.dtype) -> None:
    values = torch.arange(24).reshape(4, 6).to(form)
    across = values.t().contiguous().t()
    assert not across.is_contiguous() and sums.of([across]) == sums.of([values])
    inside = torch.cat([values.reshape(-1)[:1], values.reshape(-1)])[1:].reshape(4, 6)
    assert sums.of([inside]) == sums.of([values]), "memory that does not begin at a word"


def test_random_corruption_is_always_seen() -> None:
    tensors = state(2)
    before, made = sums.of(tensors), torch.Generator().manual_seed(3)
    for _ in range(200):
        spoiled = [each.clone() for each in tensors]
        raw = spoiled[5].view(torch.int32)
        places = torch.randint(len(raw), (50,), generator=made)
        raw[places] = torch.randint(-(1 << 31), 1 << 31, (50,), generator=made).int()
        assert sums.of(spoiled) != before


@pytest.mark.parametrize("number", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_numbers_pass_between_ranks_as_int64(number: int) -> None:
    assert int(torch.tensor(sums.signed(number), dtype=torch.int64)) == sums.signed(number)
    assert sums.unsigned(sums.signed(number)) == number


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_single_tensors_name_the_one_that_was_changed(seed: int) -> None:
    chance, tensors = random.Random(seed), state(seed)
    tensors = [*tensors, *(each.clone() for each in tensors)]

    def apart() -> list[int]:
        return [value for found in sums.each(tensors) for value in found.tolist()]

    before = apart()
    assert len(before) == len(tensors)
    for index, tensor in enumerate(tensors):
        if not tensor.numel():
            assert before[index] == 0
            continue
        raw = tensor.reshape(-1).view(torch.uint8)
        for bit in range(8):
            at = chance.randrange(raw.numel())
            raw[at] ^= 1 << bit
            differing = [place for place, value in enumerate(apart()) if value != before[place]]
            assert differing == [index]
            raw[at] ^= 1 << bit
    assert apart() == before


def test_many_small_tensors_have_a_sum_each() -> None:
    made = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1 + index * 37 % 5000, generator=made) for index in range(300)]
    before = [value for found in sums.each(tensors) for value in found.tolist()]
    tensors[211][-1] += 1.0
    after = [value for found in sums.each(tensors) for value in found.tolist()]
    assert [place for place in range(300) if before[place] != after[place]] == [211]
    assert len(set(before)) == 300 and sums.joined(before) != sums.joined(before[::-1])
