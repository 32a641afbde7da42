"""A fingerprint of a tensor's bits: equal bits give equal numbers, within one process.

The bits are read as a matrix of 64-bit numbers. Its rows are summed and weighted, and so are its columns: a
changed, moved or swapped value changes one sum or both. NaN is a pattern of bits like any other. It takes two
passes at the speed of memory, on the device that holds the tensor."""

from __future__ import annotations

import functools

import torch

_COLUMNS = 4096
_WORD_BYTES = 8

Fingerprint = tuple[int, ...]


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The fingerprint of a plain tensor. On a GPU it waits for what computes the tensor."""
    raw = _raw(tensor)
    whole = len(raw) // _WORD_BYTES * _WORD_BYTES
    rest = tuple(raw[whole:].tolist())
    if not whole:
        return rest
    words = raw[:whole]
    if words.storage_offset() % _WORD_BYTES or words.data_ptr() % _WORD_BYTES:
        words = words.clone()
    numbers = words.view(torch.int64)
    rows = len(numbers) // _COLUMNS
    head, tail = numbers[: rows * _COLUMNS].view(rows, _COLUMNS), numbers[rows * _COLUMNS :]
    sums = [_weighted(head.sum(1)), _weighted(head.sum(0)), _weighted(tail)]
    return (*(int(value) for value in torch.stack(sums).tolist()), *rest)


@torch.no_grad()
def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two plain tensors of one type and shape hold the same bits: NaN equals NaN."""
    return torch.equal(_raw(left), _raw(right))


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def _weighted(values: torch.Tensor) -> torch.Tensor:
    return (values * _weights(len(values), values.device)).sum()


@functools.lru_cache(maxsize=64)
def _weights(count: int, device: torch.device) -> torch.Tensor:
    """Odd 64-bit numbers, alike in every process."""
    generator = torch.Generator().manual_seed(0x5EED)
    found = torch.randint(-(1 << 62), 1 << 62, (count,), generator=generator, dtype=torch.int64)
    return (found * 2 + 1).to(device)
