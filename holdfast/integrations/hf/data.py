"""Give each sample of a training data set random numbers of its own, whichever process fetches it, and when.

accelerate's loader fetches one batch ahead, and workers more. A loader that is opened in the middle of an
epoch would draw other numbers for the same samples."""

from __future__ import annotations

from typing import Any

import torch

from holdfast.data.seeding import seed_all


class SeededSamples(torch.utils.data.Dataset[Any]):
    """A map data set; samples are drawn, and then collated, with numbers from (seed, epoch, sample)."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, 0
        self._whole = getattr(dataset, "__getitems__", None) is not None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_dataset", "_seed", "_epoch", "_whole"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def set_epoch(self, epoch: int) -> None:
        """Use the numbers of this epoch: call it before the loader's workers start."""
        self._epoch = epoch
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)

    def __getitem__(self, index: int) -> Any:
        seed_all(self._seed, self._epoch, index)
        return self._dataset[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of one micro-batch."""
        if self._whole:
            seed_all(self._seed, self._epoch, indices[0])
            return list(self._dataset.__getitems__(indices))
        return [self[index] for index in indices]


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
