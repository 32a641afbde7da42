"""Sum up tensors in 64 bits where they lie, so that replicas can be compared often.

Memory is read as 32-bit words x_i. The sum is w_1 x_1 + w_2 x_2 + ... modulo 2^64, with fixed odd weights w_i
of 64 bits. Integers are added without rounding, so the order of the additions does not matter, and every
device gives the same sum.

- One flipped bit is always seen: it changes one word by 2^b, b < 32, and the sum by w_i 2^b, which is no
  multiple of 2^64 because w_i is odd. So is any change within one word.
- Several changed words cancel out only by chance. Over the choice of random odd weights, a given difference
  of which some word is odd does so with probability 2^-63. Each power of two that divides all differences
  doubles that; the worst case, where only the highest bits of words are flipped, is 2^-32. Differences that
  are random themselves cancel out with probability 2^-64.

Weights are drawn once for a block of words; block and tensor have an odd factor of their own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from holdfast.state import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODULUS = 1 << 64
_WORD_BYTES = 4
_BLOCK = 1 << 15
"""Words of a block: its weights (256 KiB) stay in the cache of a core."""
_BLOCKS = 8
"""Blocks that are weighted at once on the host: the products (2 MiB) stay in the cache."""
_BLOCKS_AWAY = 128
"""The same on another device: 16 MiB of state, which takes 32 MiB more for a moment."""
_SMALL_BYTES = 64 << 10
"""Smaller tensors are put together before they are weighted: a call costs more than their memory."""


@torch.no_grad()
def of(tensors: Sequence[torch.Tensor]) -> int:
    """The sum of all bits of these tensors in their order, 0 <= sum < 2^64. Waits for their devices."""
    waiting: dict[torch.device, list[torch.Tensor]] = {}
    for run in _runs(tensors):
        waiting.setdefault(run.device, []).append(_weighted(run))
    return joined([value for found in waiting.values() for value in torch.stack(found).tolist()])


@torch.no_grad()
def each(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sum of each of these tensors by itself, in their order: vectors of int64 on their devices. Waits
    for none."""
    found: list[torch.Tensor] = []
    small: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        words = _words(digest.flat(tensor))
        large = words.nbytes >= _SMALL_BYTES
        if small and (large or small[0].device != words.device or size + words.numel() > _BLOCK):
            found.append(_apart(small))
            small, size = [], 0
        if large:
            found.append(_weighted(words.view(torch.uint8)).reshape(1))
        else:
            small.append(words)
            size += words.numel()
    return [*found, _apart(small)] if small else found


def joined(values: Sequence[int]) -> int:
    """One sum for these sums in their order."""
    return sum(value * _odd(place) for place, value in enumerate(values)) % MODULUS


def text(data: bytes) -> int:
    """A number of 64 bits for these bytes of text."""
    return int.from_bytes(hashlib.blake2s(data, digest_size=8).digest(), "big")


def signed(number: int) -> int:
    """The number below 2^64 as an int64 of the same bits, as ranks exchange it."""
    return number - MODULUS if number >= MODULUS // 2 else number


def unsigned(number: int) -> int:
    """The number below 2^64 that `signed` was given."""
    return number % MODULUS


def _runs(tensors: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    """The bytes of the tensors as flat runs: large tensors alone, neighbours that are small together."""
    small: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if not tensor.numel():
            continue
        flat = digest.flat(tensor)
        if small and (flat.numel() >= _SMALL_BYTES or small[0].device != flat.device or size >= 1 << 20):
            yield torch.cat(small)
            small, size = [], 0
        if flat.numel() >= _SMALL_BYTES:
            yield flat
        else:
            small.append(flat)
            size += flat.numel()
    if small:
        yield torch.cat(small)


def _weighted(flat: torch.Tensor) -> torch.Tensor:
    """The sum of one run of bytes, as an int64 on its device."""
    words = _words(flat)
    weights = digest.weights(flat.device)
    blocks = _BLOCKS if flat.device.type == "cpu" else _BLOCKS_AWAY
    whole = words.numel() // _BLOCK
    sums = []
    if whole:
        square = words[: whole * _BLOCK].view(whole, _BLOCK)
        room = torch.empty(min(whole, blocks), _BLOCK, dtype=torch.int64, device=flat.device)
        for part in torch.split(square, blocks):
            products = torch.mul(part, weights, out=room[: len(part)])
            sums.append(products.sum(1))
    if rest := words.numel() - whole * _BLOCK:
        sums.append((words[whole * _BLOCK :] * weights[:rest]).sum().reshape(1))
    every = torch.cat(sums) if len(sums) > 1 else sums[0]
    return (every * _factors(len(every), flat.device)).sum()


def _apart(small: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sums of some runs of words, together at most a block of them."""
    words = torch.cat(list(small))
    running = torch.cumsum(words * digest.weights(words.device)[: words.numel()], 0)
    running = torch.cat((running.new_zeros(1), running))
    sizes = torch.tensor([0, *(run.numel() for run in small)])
    ends = torch.cumsum(sizes, 0).to(words.device, non_blocking=True)
    return running[ends].diff()


def _words(flat: torch.Tensor) -> torch.Tensor:
    """The bytes as 32-bit words; the last one is filled up with zeros."""
    if short := -flat.numel() % _WORD_BYTES:
        flat = torch.cat((flat, flat.new_zeros(short)))
    if flat.storage_offset() % _WORD_BYTES or flat.data_ptr() % _WORD_BYTES:
        flat = flat.clone()
    return flat.view(torch.int32)


def _factors(count: int, device: torch.device) -> torch.Tensor:
    """An odd factor for each of so many blocks: the weights again, times an odd number for each round."""
    at = torch.arange(count, device=device)
    return digest.weights(device)[at % _BLOCK] * (2 * (at // _BLOCK) + 1)


def _odd(place: int) -> int:
    """An odd factor for this run of bytes (Weyl's sequence with the golden ratio in 64 bits)."""
    return (place * 0x9E3779B97F4A7C15 << 1 | 1) % MODULUS
