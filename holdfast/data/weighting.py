"""Exact gradients when the global batch does not divide evenly among the ranks.

DistributedDataParallel averages over ranks, and each rank's loss is the mean over its own samples: with
shares of unequal size that is not the mean over the global batch. What a rank gives is therefore multiplied
by (its samples) * (ranks) / (global batch). With equal shares that is 1, and nothing is done."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class Weighting:
    """The weight of this rank's share in the current step, on the gradients of the modules it watches."""

    def __init__(self) -> None:
        self.weight = 1.0
        self._modules: list[weakref.ref[torch.nn.Module]] = []
        self._handles: list[RemovableHandle] = []

    def reset(self) -> None:
        """A new generation: its modules are wrapped anew."""
        self._unhook()
        self._modules.clear()
        self.weight = 1.0

    def watch(self, module: torch.nn.Module) -> None:
        """Weigh the gradients of this module, too."""
        self._modules.append(weakref.ref(module))
        if self._handles:
            self._unhook()
            self._hook()

    def share(self, samples: int, global_batch: int, world_size: int) -> None:
        """So many samples of the step's global batch are this rank's."""
        self.weight = samples * world_size / global_batch
        if self.weight != 1.0 and not self._handles:
            self._hook()
        elif self.weight == 1.0 and self._handles:
            self._unhook()

    def _hook(self) -> None:
        modules = [module for reference in self._modules if (module := reference()) is not None]
        parameters = {id(p): p for module in modules for p in module.parameters() if p.requires_grad}
        self._handles = [parameter.register_hook(self._weigh) for parameter in parameters.values()]  # type: ignore[no-untyped-call]

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _weigh(self, gradient: torch.Tensor) -> Any:
        """Called before the gradient reaches the reducer. A rank without samples may have a loss of nan."""
        return gradient * self.weight if self.weight else torch.zeros_like(gradient)
