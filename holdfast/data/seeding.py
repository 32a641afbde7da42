"""Seed a data set's random numbers by (seed, batch, sample), whichever process fetches the sample.

This also runs in DataLoader's workers, so it may not import anything that holds a session."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from holdfast.data.own_generators import OwnGenerators
from holdfast.state import randomness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType


class Tag(NamedTuple):
    """The micro-batch that something was fetched for; `part` is its index in the step."""

    generation: int
    step: int
    batch: int
    part: int


class Wanted(NamedTuple):
    """What a worker is to fetch. `share`: all samples that this rank takes in the step, if this is its first
    micro-batch; else []."""

    tag: Tag
    seed: int
    indices: list[int]
    share: list[int]


class FetchedBatch(NamedTuple):
    """What a worker has fetched. `data`: the samples, or what they were collated to."""

    tag: Tag
    share: list[int]
    data: Any


class Seeded(torch.utils.data.Dataset[Any]):
    """A map data set that is asked for micro-batches. `collate`: what its samples are collated with."""

    def __init__(self, dataset: Any, collate: Any = None) -> None:
        self._dataset = dataset
        self.own = OwnGenerators(dataset, collate)
        self._whole = getattr(dataset, "__getitems__", None) is not None

    def __getitem__(self, wanted: Wanted) -> Any:
        return self.__getitems__(wanted)

    def __getitems__(self, wanted: Wanted) -> FetchedBatch:
        """The samples of a micro-batch, each with its own random numbers.

        If the data set fetches many samples at once, all use those of the first one."""
        tag, seed, indices, share = wanted
        if self._whole:
            first = (seed, tag.batch, indices[0])
            return FetchedBatch(tag, share, drawn(self.own, first, self._dataset.__getitems__, indices))
        get = self._dataset.__getitem__
        samples = [drawn(self.own, (seed, tag.batch, index), get, index) for index in indices]
        return FetchedBatch(tag, share, samples)


class Collated:
    """Collates what was fetched, and keeps its tag."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, fetched: FetchedBatch) -> FetchedBatch:
        """The same micro-batch, collated."""
        return fetched._replace(data=self._collate(fetched.data))


class WorkerInit:
    """What a worker does first: watch its rank, then run the script's `worker_init_fn`.

    Workers of a forkserver would outlive a killed rank: the server lives as long as its workers, and they as
    long as the server."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Make this worker end with its rank, then run the script's function."""
        threading.Thread(target=_end_with_rank, name="holdfast-worker", daemon=True).start()
        if self._then is not None:
            self._then(worker)


def _end_with_rank() -> None:
    rank = multiprocessing.parent_process()
    if rank is not None:
        rank.join()
        os._exit(1)


def seed_all(seed: int, batch: int, sample: int) -> int:
    """Seed torch on the CPU, random, and numpy if it is loaded. Returns what they are seeded with."""
    value = randomness.mixed(seed, batch, sample) >> 1
    torch.default_generator.manual_seed(value)
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(value & 0xFFFFFFFF)
    return value


def drawn(own: OwnGenerators, place: tuple[int, int, int], get: Callable[[Any], Any], wanted: Any) -> Any:
    """What a data set gives after generators were seeded for this place: those of the process, and its `own`.
    It is asked once more if it has made some meanwhile."""
    own.seed(seed_all(*place))
    found = get(wanted)
    if own.grown():
        own.seed(seed_all(*place))
        found = get(wanted)
    return found


class PreservedGenerators:
    """A context that leaves the CPU's random generators as they were, and those of a data set (`own`)."""

    def __init__(self, own: Iterable[Any] = ()) -> None:
        self._own = own

    def __enter__(self) -> None:
        self._states = [(each, randomness.state_of(each)) for each in self._own]
        numpy: Any = sys.modules.get("numpy")
        self._torch = torch.default_generator.get_state()
        self._random = random.getstate()
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for generator, state in self._states:
            randomness.set_state(generator, state)
        torch.default_generator.set_state(self._torch)
        random.setstate(self._random)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
