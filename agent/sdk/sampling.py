"""Which samples a step consumes: a keyed permutation per epoch, in time that depends on the batch alone.

The position of a sample in the endless order is step * global_batch + i; its epoch is position // n, and
within an epoch a four-round Feistel network with cycle walking maps positions to samples. Nothing is stored
and nothing depends on the world size, so any rank can compute any part at any step."""

from __future__ import annotations

import torch

from agent.sdk.errors import SessionError

_MASK = (1 << 64) - 1
_ROUNDS = 4


def mix(value: int) -> int:
    """A 64-bit hash of a 64-bit integer (splitmix64's finaliser)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def share(global_batch: int, rank: int, world_size: int) -> range:
    """Places within the global batch that this rank takes: contiguous, sizes differ by one at most."""
    return range(rank * global_batch // world_size, (rank + 1) * global_batch // world_size)


def check(n: int, global_batch: int) -> None:
    """Raise SessionError on sizes that cannot be."""
    for name, value, most in (("n", n, 1 << 60), ("global_batch", global_batch, 1 << 40)):
        if type(value) is not int or not 1 <= value <= most:
            raise SessionError(f"sample_indices: {name} must be an integer of 1 or more, not {value!r:.80}")


def indices(n: int, start: int, count: int, seed: int) -> torch.Tensor:
    """The samples at positions start .. start + count - 1 of the endless order over n samples (int64)."""
    values: list[int] = []
    position, end = start, start + count
    while position < end:
        epoch, offset = divmod(position, n)
        upto = min(end, (epoch + 1) * n)
        keys = [mix(mix(mix(seed & _MASK) ^ epoch) ^ turn) for turn in range(_ROUNDS)]
        values += _permuted(offset, upto - position, n, keys)
        position = upto
    return torch.tensor(values, dtype=torch.int64)


def _permuted(offset: int, count: int, n: int, keys: list[int]) -> list[int]:
    """Images of offset .. offset + count - 1 under the permutation of range(n) that the keys choose."""
    half = max((max(n - 1, 1).bit_length() + 1) // 2, 1)
    low = (1 << half) - 1
    first, second, third, fourth = (key | 1 for key in keys)
    shift, found = 64 - half, []
    for place in range(offset, offset + count):
        value = place
        while True:
            left, right = value >> half, value & low
            left ^= ((((right + 1) * first) & _MASK) * third & _MASK) >> shift
            right ^= ((((left + 1) * second) & _MASK) * fourth & _MASK) >> shift
            left ^= ((((right + 1) * third) & _MASK) * second & _MASK) >> shift
            right ^= ((((left + 1) * fourth) & _MASK) * first & _MASK) >> shift
            value = left << half | right
            if value < n:
                break
        found.append(value)
    return found
