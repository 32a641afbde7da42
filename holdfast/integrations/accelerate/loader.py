"""Open accelerate's loader of the training in any epoch, at any of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderShard, SeedableRandomSampler

from holdfast.integrations.accelerate import refusals
from holdfast.integrations.placed import PlacedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.integrations.own_loop import OwnLoop


class LedLoader(DataLoaderShard):
    """accelerate's loader, which an OwnLoop may lead; until then it is exactly accelerate's."""

    base_dataloader: Any
    _loop: OwnLoop | None = None
    _placed: PlacedLoader | None = None

    @classmethod
    def instead_of(cls, loader: Any) -> LedLoader:
        """A loader that takes the place of accelerate's."""
        own = cls.__new__(cls)
        own.__dict__.update(loader.__dict__)
        return own

    def lead(self, loop: OwnLoop) -> None:
        """From now on it is the training's. Raises SessionError for one without positions."""
        refusals.check_training(self)
        self._loop = loop

    def __iter__(self) -> Iterator[Any]:
        if self._loop is None:
            return super().__iter__()  # type: ignore[no-any-return]
        return self._loop.batches(self._open_at)

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
