"""Seed a data set's random numbers by (seed, batch, sample), whichever process fetches the sample, however
often.

This runs in DataLoader's workers, too: it may not import what holds a session."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from holdfast.state.randomness import mix

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_MASK = (1 << 64) - 1


class Tag(NamedTuple):
    """For which micro-batch something was fetched."""

    generation: int
    step: int
    batch: int
    part: int


class Wanted(NamedTuple):
    """What a worker is to fetch. `share`: all that the step has for this rank, with its first micro-batch."""

    tag: Tag
    seed: int
    indices: list[int]
    share: list[int]


class Fetched(NamedTuple):
    """What it has fetched: samples, or what they were collated to."""

    tag: Tag
    share: list[int]
    data: Any


class Seeded(torch.utils.data.Dataset[Any]):
    """A map data set that is asked for micro-batches."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._whole = getattr(dataset, "__getitems__", None) is not None

    def __getitem__(self, wanted: Wanted) -> Any:
        return self.__getitems__(wanted)

    def __getitems__(self, wanted: Wanted) -> Fetched:
        """The samples of a micro-batch, each with random numbers of its own; where the data set fetches many
        at once, with those of the first."""
        tag, seed, indices, share = wanted
        if self._whole:
            seed_all(seed, tag.batch, indices[0])
            return Fetched(tag, share, self._dataset.__getitems__(indices))
        found = []
        for index in indices:
            seed_all(seed, tag.batch, index)
            found.append(self._dataset[index])
        return Fetched(tag, share, found)


class Collated:
    """Collates what was fetched, and leaves the tag on it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, fetched: Fetched) -> Fetched:
        """The same, collated."""
        return fetched._replace(data=self._collate(fetched.data))


class Started:
    """What a worker does first. Workers of a forkserver outlive a rank that was killed: the server lives as
    long as they do, and they as long as the server."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """End with the rank from now on; then what the script wants done."""
        threading.Thread(target=_end_with_rank, name="holdfast-worker", daemon=True).start()
        if self._then is not None:
            self._then(worker)


def _end_with_rank() -> None:
    rank = multiprocessing.parent_process()
    if rank is not None:
        rank.join()
        os._exit(1)


def seed_all(seed: int, batch: int, sample: int) -> None:
    """Seed torch on the CPU, random, and numpy if it is loaded."""
    value = mix(mix(mix(seed & _MASK) ^ batch) ^ sample) >> 1
    torch.default_generator.manual_seed(value)
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(value & 0xFFFFFFFF)


class Aside:
    """What is done within leaves the CPU's random numbers as they were."""

    def __enter__(self) -> None:
        numpy: Any = sys.modules.get("numpy")
        self._torch = torch.default_generator.get_state()
        self._random = random.getstate()
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        torch.default_generator.set_state(self._torch)
        random.setstate(self._random)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
