"""Which samples a step consumes: a keyed permutation per epoch, in time that depends on the batch alone.

The position of a sample in the endless order is step * global_batch + i; its epoch is position // n, and
within an epoch a four-round Feistel network on a grid maps positions to samples. Nothing is stored
and nothing depends on the world size, so any rank can compute any part at any step."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from agent.sdk.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MASK = (1 << 64) - 1
_LOW = (1 << 31) - 1
_SCALAR_MAX = 48  # up to so many samples plain integers are faster than tensors
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
    parts = []
    position, end = start, start + count
    while position < end:
        epoch, offset = divmod(position, n)
        upto = min(end, (epoch + 1) * n)
        parts.append(_permuted(offset, upto - position, n, _grid(n, seed, epoch)))
        position = upto
    return parts[0] if len(parts) == 1 else torch.cat([torch.empty(0, dtype=torch.int64), *parts])


@functools.lru_cache(maxsize=16)
def _grid(n: int, seed: int, epoch: int) -> _Grid:
    keys = [mix(mix(mix(seed & _MASK) ^ epoch) ^ turn) for turn in range(_ROUNDS)]
    return _Grid(n, keys)


def _permuted(offset: int, count: int, n: int, grid: _Grid) -> torch.Tensor:
    """Images of count places from offset on. A cell beyond n (there are few) is walked on from."""
    if count > _SCALAR_MAX:
        found: torch.Tensor = next(grid.move((torch.arange(offset, offset + count),)))
        while bool((outside := found >= n).any()):
            found[outside] = next(grid.move((found[outside],)))
        return found
    cells = list(grid.move(range(offset, offset + count)))
    while max(cells) >= n:
        cells = [cell if cell < n else next(grid.move((cell,))) for cell in cells]
    return torch.tensor(cells, dtype=torch.int64)


class _Grid:
    """The network over a grid of cells, the smallest near-square one that holds n. Numbers or tensors."""

    def __init__(self, n: int, keys: list[int]) -> None:
        self._width = math.isqrt(n - 1) + 1
        self._height = -(-n // self._width)
        self._keys = [(key & _LOW, (key >> 31 & _LOW) | 1, (key >> 17 & _LOW) | 1) for key in keys]

    def move(self, places: Iterable[Any]) -> Iterator[Any]:
        """Cells to cells, one to one. No product leaves 62 bits: width and height are below 2**30."""
        width, height, low = self._width, self._height, _LOW
        (a, b, c), (d, e, f), (g, h, i), (j, k, m) = self._keys
        for place in places:
            row, column = place // width, place % width
            mixed = (column ^ a) * b >> 13 & low
            row = (row + ((mixed ^ mixed >> 15) * c >> 24)) % height
            mixed = (row ^ d) * e >> 13 & low
            column = (column + ((mixed ^ mixed >> 15) * f >> 24)) % width
            mixed = (column ^ g) * h >> 13 & low
            row = (row + ((mixed ^ mixed >> 15) * i >> 24)) % height
            mixed = (row ^ j) * k >> 13 & low
            column = (column + ((mixed ^ mixed >> 15) * m >> 24)) % width
            yield row * width + column
