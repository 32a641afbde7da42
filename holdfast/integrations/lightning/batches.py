"""Start to fetch train batches at a position in an epoch, with the samples and random numbers of there.

A map data set is not read before the position; an iterable one is, up to the position. Samples that worker
processes fetch bring their seeds, and so do those of a data set with random generators of its own; others are
fetched in the step that uses them, with its random numbers."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from holdfast.data.own_generators import OwnGenerators
from holdfast.data.seeding import PreservedGenerators, seed_all
from holdfast.integrations.placed import (
    PlacedSampler,
    SeededStream,
    TaggedSamples,
    end_workers,
    refuse_late,
    sampler_name,
    seed_evaluation,
    set_attributes,
)


class TrainBatches:
    """Starts the iterators of the train loader."""

    def __init__(self) -> None:
        self._seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        # By a loader's id. Persistent workers keep the sampler that they were started with.
        self._placed: dict[int, tuple[Any, PlacedSampler]] = {}

    def start(self, fetcher: Any, epoch: int, position: int, rank: int = 0) -> None:
        """Make the fetcher go on after `position` batches of the epoch."""
        (loader,) = fetcher.combined_loader.flattened
        with PreservedGenerators():
            seed_all(self._seed, epoch, 0)
            skipped = self._iterate(fetcher, loader, epoch, position, rank)
            for _ in range(position - skipped):
                next(fetcher)
        fetcher.fetched = position
        fetcher.done = fetcher.length is not None and position >= fetcher.length

    def seed_validation(self, combined: Any, step: int, rank: int) -> None:
        """Seed the random generators that data sets of a validation hold."""
        for loader in combined.flattened if combined is not None else ():
            if isinstance(loader, DataLoader):
                seed_evaluation(loader, self._seed, step, rank)

    def _iterate(self, fetcher: Any, loader: Any, epoch: int, position: int, rank: int) -> int:
        """Start the iterator. Returns how many batches it leaves out."""
        refuse_late(loader.collate_fn)
        if isinstance(loader.dataset, IterableDataset):
            end_workers(loader)  # Lightning starts some where it sets a loader up
            stream = SeededStream(loader.dataset, loader.collate_fn, self._seed, epoch)
            _open(fetcher, loader, {"dataset": stream})
            return 0
        name = sampler_name(loader)
        tagged = loader.num_workers > 0 or bool(OwnGenerators(loader.dataset, loader.collate_fn).known())
        known, placed = self._placed.get(id(loader), (None, None))
        sampler = getattr(loader, name)
        if placed is None or known is not sampler:
            placed = PlacedSampler(sampler, self._seed, tagged=tagged)
            self._placed[id(loader)] = sampler, placed
            end_workers(loader)
        placed.epoch, placed.position, placed.apart = epoch, position, rank
        samples = TaggedSamples(loader.dataset, loader.collate_fn) if tagged else loader.dataset
        _open(fetcher, loader, {name: placed, "dataset": samples})
        return position


def _open(fetcher: Any, loader: Any, instead: dict[str, Any]) -> None:
    """Start the fetcher's iterator, with these attributes of its loader."""
    own = {name: getattr(loader, name) for name in instead}
    try:
        set_attributes(loader, instead)
        iter(fetcher)
    finally:
        set_attributes(loader, own)
