"""Give each sample of a training data set random numbers of its own, whichever process fetches it, and when.

accelerate's loader fetches one batch ahead, and workers more. A loader that is opened in the middle of an
epoch would draw other numbers for the same samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.data.own_generators import OwnGenerators
from holdfast.data.seeding import drawn
from holdfast.integrations.placed import set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable


class SeededSamples(torch.utils.data.Dataset[Any]):
    """A map data set; samples are drawn, and then collated, with numbers from (seed, epoch, sample)."""

    def __init__(self, dataset: Any, seed: int, collate: Any = None) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, 0
        self._own = OwnGenerators(dataset, collate)
        self._whole = getattr(dataset, "__getitems__", None) is not None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_dataset", "_seed", "_epoch", "_own", "_whole"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def set_epoch(self, epoch: int) -> None:
        """Use the numbers of this epoch: call it before the loader's workers start."""
        self._epoch = epoch
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        self._own.look()

    def __getitem__(self, index: int) -> Any:
        return self._drawn(index, self._dataset.__getitem__, index)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of one micro-batch."""
        if self._whole:
            samples: list[Any] = self._drawn(indices[0], self._dataset.__getitems__, indices)
            return list(samples)
        return [self[index] for index in indices]

    def _drawn(self, first: int, get: Callable[[Any], Any], wanted: Any) -> Any:
        return drawn(self._own, (self._seed, self._epoch, first), get, wanted)


def has_positions(dataset: Any) -> bool:
    """Whether it is a map data set."""
    return hasattr(dataset, "__len__") and not isinstance(dataset, torch.utils.data.IterableDataset)


def seed_samples(loader: Any, seed: int) -> None:
    """Have a loader of the training that the script has made itself draw its samples as SeededSamples."""
    base = getattr(loader, "base_dataloader", loader)  # accelerate's holds torch's
    if not isinstance(base.dataset, SeededSamples):
        set_attributes(base, {"dataset": SeededSamples(base.dataset, seed, base.collate_fn)})


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell every sampler inside a loader, and its data set, which epoch begins.

    accelerate's own `set_epoch` does not reach the sampler behind a loader that skips batches."""
    pending, seen = [loader.batch_sampler, loader.sampler, loader.dataset], set()
    while pending:
        found = pending.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if hasattr(found, "set_epoch"):
            found.set_epoch(epoch)
        pending += [getattr(found, name, None) for name in ("batch_sampler", "sampler")]
