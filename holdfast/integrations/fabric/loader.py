"""Open Fabric's loader of the training in any epoch, at any of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.fabric.wrappers import _FabricDataLoader

from holdfast.integrations.fabric import refusals
from holdfast.integrations.led_loader import LedLoader
from holdfast.integrations.placed import PlacedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator


class LedFabricLoader(LedLoader, _FabricDataLoader):
    """Fabric's loader, which an OwnLoop may lead."""

    _dataloader: Any
    _device: Any
    _counter = "_num_iter_calls"

    def _check(self) -> None:
        refusals.check_training(self._dataloader)

    def _open_at(self, epoch: int, position: int) -> Iterator[Any]:
        loop = self._loop
        assert loop is not None
        if self._placed is None:
            self._placed = PlacedLoader(self._dataloader, loop.progress.seed, loop.session.rank)
        _set_sampler_epoch(self._dataloader, epoch)
        self._placed.place(epoch, position)
        found = self._placed.open()
        return found if self._device is None else (move_data_to_device(each, self._device) for each in found)
