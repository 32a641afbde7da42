"""Start to fetch train batches at a position in an epoch, with the samples and random numbers of there.

A sampler is asked for indices with random numbers that depend on (seed, epoch, batch) alone, and so are
samples that worker processes fetch: however often the training starts again, a batch is the same. A map data
set is not read before the position; an iterable one is, up to the position."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from holdfast.data.seeding import PreservedGenerators, seed_all

if TYPE_CHECKING:
    from collections.abc import Iterator


class PlacedSampler:
    """Indices from a position of an epoch on. `tagged`: each index brings the seed of its sample."""

    def __init__(self, sampler: Any, seed: int, *, tagged: bool) -> None:
        self.sampler = getattr(sampler, "sampler", sampler)  # Lightning looks for the inner one
        self._inner, self._seed, self._tagged = sampler, seed, tagged
        self.epoch = self.position = 0

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        epoch, position, batch = self.epoch, self.position, 0
        found = iter(self._inner)
        while True:
            with PreservedGenerators():
                seed_all(self._seed, epoch, batch)
                try:
                    indices = next(found)
                except StopIteration:
                    return
            if batch >= position:
                yield self._tag(indices, epoch, batch) if self._tagged else indices
            batch += 1

    def _tag(self, indices: Any, epoch: int, batch: int) -> Any:
        many = indices if isinstance(indices, list | tuple) else [indices]
        tags = [(index, (self._seed + epoch, batch, place)) for place, index in enumerate(many)]
        return tags if isinstance(indices, list | tuple) else tags[0]


class TaggedSamples(torch.utils.data.Dataset[Any]):
    """A map data set in a worker process, asked for samples that bring their seeds."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        if getattr(dataset, "__getitems__", None) is not None:
            self.__getitems__ = self._many

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, tagged: Any) -> Any:
        index, seed = tagged
        seed_all(*seed)
        return self._dataset[index]

    def _many(self, tagged: list[Any]) -> Any:
        seed_all(*tagged[0][1])
        return self._dataset.__getitems__([index for index, _ in tagged])


class TrainBatches:
    """Starts the iterators of the train loader."""

    def __init__(self) -> None:
        self._seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        # By a loader's id. Persistent workers keep the sampler that they were started with.
        self._placed: dict[int, tuple[Any, PlacedSampler]] = {}

    def start(self, fetcher: Any, epoch: int, position: int) -> None:
        """Make the fetcher go on after `position` batches of the epoch."""
        (loader,) = fetcher.combined_loader.flattened
        with PreservedGenerators():
            seed_all(self._seed, epoch, 0)
            skipped = self._iterate(fetcher, loader, epoch, position)
            for _ in range(position - skipped):
                next(fetcher)
        fetcher.fetched = position
        fetcher.done = fetcher.length is not None and position >= fetcher.length

    def _iterate(self, fetcher: Any, loader: Any, epoch: int, position: int) -> int:
        """Start the iterator. Returns how many batches it leaves out."""
        if isinstance(loader.dataset, IterableDataset):
            iter(fetcher)
            return 0
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        own = {name: getattr(loader, name), "dataset": loader.dataset}
        tagged = loader.num_workers > 0
        known, placed = self._placed.get(id(loader), (None, None))
        if placed is None or known is not own[name]:
            placed = PlacedSampler(own[name], self._seed, tagged=tagged)
            self._placed[id(loader)] = own[name], placed
        placed.epoch, placed.position = epoch, position
        instead = {name: placed, "dataset": TaggedSamples(loader.dataset) if tagged else loader.dataset}
        try:
            _set(loader, instead)
            iter(fetcher)
        finally:
            _set(loader, own)
        return position


def _set(loader: Any, values: dict[str, Any]) -> None:
    """Set attributes that DataLoader refuses to have set after it was made."""
    for name, value in values.items():
        object.__setattr__(loader, name, value)
