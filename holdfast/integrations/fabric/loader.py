"""Open Fabric's loader of the training in any epoch, at any of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.fabric.wrappers import _FabricDataLoader

from holdfast.integrations.fabric import refusals
from holdfast.integrations.placed import PlacedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.integrations.own_loop import OwnLoop


class LedFabricLoader(_FabricDataLoader):
    """Fabric's loader, which an OwnLoop may lead; until then it is exactly Fabric's."""

    _dataloader: Any
    _device: Any
    _loop: OwnLoop | None = None
    _placed: PlacedLoader | None = None

    @classmethod
    def instead_of(cls, loader: Any) -> LedFabricLoader:
        """A loader that takes the place of Fabric's."""
        own = cls.__new__(cls)
        own.__dict__.update(loader.__dict__)
        return own

    def lead(self, loop: OwnLoop) -> None:
        """From now on it is the training's. Raises SessionError for one without positions."""
        refusals.check_training(self._dataloader)
        self._loop = loop

    def __iter__(self) -> Iterator[Any]:
        if self._loop is None:
            return iter(super().__iter__())
        return self._loop.batches(self._open_at)

    def _open_at(self, epoch: int, position: int) -> Iterator[Any]:
        loop = self._loop
        assert loop is not None
        if self._placed is None:
            self._placed = PlacedLoader(self._dataloader, loop.progress.seed, loop.session.rank)
        _set_sampler_epoch(self._dataloader, epoch)
        self._placed.place(epoch, position)
        found = self._placed.open()
        return found if self._device is None else (move_data_to_device(each, self._device) for each in found)
