"""Start to fetch train batches at a position in an epoch, with the samples and random numbers of there.

A map data set is not read before the position; an iterable one is, up to the position. Samples that worker
processes fetch bring their seeds; others are fetched in the step that uses them, with its random numbers."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import IterableDataset

from holdfast.data.seeding import PreservedGenerators, seed_all
from holdfast.integrations.placed import PlacedSampler, TaggedSamples, sampler_name, set_attributes


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
        name = sampler_name(loader)
        own = {name: getattr(loader, name), "dataset": loader.dataset}
        tagged = loader.num_workers > 0
        known, placed = self._placed.get(id(loader), (None, None))
        if placed is None or known is not own[name]:
            placed = PlacedSampler(own[name], self._seed, tagged=tagged)
            self._placed[id(loader)] = own[name], placed
        placed.epoch, placed.position = epoch, position
        instead = {name: placed, "dataset": TaggedSamples(loader.dataset) if tagged else loader.dataset}
        try:
            set_attributes(loader, instead)
            iter(fetcher)
        finally:
            set_attributes(loader, own)
        return position
