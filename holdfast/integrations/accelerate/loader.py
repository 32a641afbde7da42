"""Open accelerate's loader of the training in any epoch, at any of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderShard, SeedableRandomSampler

from holdfast.integrations.accelerate import refusals
from holdfast.integrations.led_loader import LedLoader
from holdfast.integrations.placed import PlacedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator


class LedShard(LedLoader, DataLoaderShard):
    """accelerate's loader, which an OwnLoop may lead."""

    base_dataloader: Any
    _counter = "iteration"

    def enter_epoch(self, epoch: int) -> None:
        """The next order is that of this epoch, also that of a loader which `skip_first_batches` makes."""
        self.set_epoch(epoch)

    def _check(self) -> None:
        refusals.check_training(self)

    def _open_at(self, epoch: int, position: int) -> Iterator[Any]:
        if self._placed is None:
            self._placed = self._place()
        self.set_epoch(epoch)
        self._placed.place(epoch, position)
        return DataLoaderShard.__iter__(self)  # type: ignore[no-any-return]

    def _place(self) -> PlacedLoader:
        loop = self._loop
        assert loop is not None
        sampler = self.get_sampler()
        if isinstance(sampler, SeedableRandomSampler):
            sampler.initial_seed = loop.progress.seed
        placed = PlacedLoader(self.base_dataloader, loop.progress.seed, loop.session.rank)
        vars(self.base_dataloader)["__iter__"] = placed.open  # DataLoaderShard calls it by this name
        return placed
