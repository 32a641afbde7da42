"""Compute which samples a step consumes, at a cost that depends on the batch alone.

Each epoch is a keyed permutation. Sample i of a step has position step * global_batch + i in the endless
order; its epoch is position // n; within the epoch a four-round Feistel network on a grid maps positions to
samples. Nothing is stored and nothing depends on the world size, so any rank can compute any part of any
step."""

from __future__ import annotations

import functools
import math

import torch

from holdfast.errors import SessionError
from holdfast.state.randomness import mixed

_LOW = (1 << 31) - 1
_AHEAD = 1024  # samples that are computed together
_ROUNDS = 4
_Order = tuple[int, int, range, int]
"""Samples of the data set, samples of a step, a rank's places among these, and the seed."""


def share(global_batch: int, rank: int, world_size: int) -> range:
    """This rank's places within the global batch: contiguous, with sizes that differ by at most one."""
    return range(rank * global_batch // world_size, (rank + 1) * global_batch // world_size)


def check(n: int, global_batch: int, caller: str = "sample_indices") -> None:
    """Raise SessionError for impossible sizes. `caller`: the session method that the script called."""
    for name, value, most in (("n", n, 1 << 60), ("global_batch", global_batch, 1 << 40)):
        if type(value) is not int or not 1 <= value <= most:
            raise SessionError(f"{caller}: {name} must be an integer of 1 or more, not {value!r:.80}")


def indices(n: int, start: int, count: int, seed: int) -> torch.Tensor:
    """The samples at positions start .. start + count - 1 of the endless order over n samples (int64)."""
    return _at(n, start, torch.arange(count), seed)


class Ahead:
    """A rank's samples of several steps, computed together: a tensor of 16 costs as much time as one of
    1000."""

    def __init__(self) -> None:
        self._order: _Order = (0, 0, range(0), 0)
        self._first = 0
        self._rows: tuple[torch.Tensor, ...] = ()

    def take(self, n: int, step: int, global_batch: int, places: range, seed: int) -> torch.Tensor:
        """The samples of this step at these places of its global batch (int64), in a tensor of the caller's
        own."""
        order = (n, global_batch, places, seed)
        if order != self._order or not self._first <= step < self._first + len(self._rows):
            self._order, self._first = order, step
            steps = max(min(_AHEAD // max(len(places), 1), n // global_batch), 1)
            self._rows = _rows(self._order, step, steps)
        return self._rows[step - self._first].clone()

    def intact(self) -> bool:
        """Whether what was computed is what it is computed to be now."""
        if not self._rows:
            return True
        again = _rows(self._order, self._first, len(self._rows))
        return all(map(torch.equal, self._rows, again))


def _rows(order: _Order, step: int, steps: int) -> tuple[torch.Tensor, ...]:
    """The samples of so many steps from `step` on, one tensor for each."""
    n, global_batch, places, seed = order
    away = torch.arange(steps).unsqueeze(1) * global_batch + torch.arange(len(places))
    found = _at(n, step * global_batch + places.start, away.flatten(), seed)
    return found.view(steps, len(places)).unbind()


def _at(n: int, start: int, away: torch.Tensor, seed: int) -> torch.Tensor:
    """The samples at positions start + away; `away` ascends from 0."""
    epoch, offset = divmod(start, n)
    if not len(away) or offset + int(away[-1]) < n:
        return _permuted(away + offset, n, _grid(n, seed, epoch))
    parts, at = [], away + offset
    while len(at):
        now = int(torch.searchsorted(at, n))
        parts.append(_permuted(at[:now], n, _grid(n, seed, epoch)))
        at, epoch = at[now:] - n, epoch + 1
    return torch.cat(parts)


@functools.lru_cache(maxsize=16)
def _grid(n: int, seed: int, epoch: int) -> _Grid:
    keys = [mixed(seed, epoch, turn) for turn in range(_ROUNDS)]
    return _Grid(n, keys)


def _permuted(places: torch.Tensor, n: int, grid: _Grid) -> torch.Tensor:
    """The samples at these places, all below n. A cell beyond n (there are few) is mapped again."""
    found = grid.move(places)
    while bool((outside := found >= n).any()):
        found[outside] = grid.move(found[outside])
    return found


class _Grid:
    """The Feistel network over the smallest near-square grid with at least n cells."""

    def __init__(self, n: int, keys: list[int]) -> None:
        self._width = math.isqrt(n - 1) + 1
        self._height = -(-n // self._width)
        self._keys = [(key & _LOW, (key >> 31 & _LOW) | 1, (key >> 17 & _LOW) | 1) for key in keys]

    def move(self, places: torch.Tensor) -> torch.Tensor:
        """Map cells one to one to cells. No product exceeds 62 bits: width and height are below 2**30."""
        sides = [places // self._width, places % self._width]
        lengths = (self._height, self._width)
        for turn, (a, b, c) in enumerate(self._keys):
            mixed = (sides[1 - turn % 2] ^ a) * b >> 13 & _LOW
            moved = sides[turn % 2] + ((mixed ^ mixed >> 15) * c >> 24)
            sides[turn % 2] = moved % lengths[turn % 2]
        return sides[0] * self._width + sides[1]
