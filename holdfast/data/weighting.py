"""Weight gradients exactly if the global batch does not divide evenly among the ranks.

DistributedDataParallel averages over ranks, and each rank's loss is the mean over its own samples. With
unequal shares this is not the mean over the global batch. So each rank's gradients are multiplied by (its
samples) * (ranks) / (global batch). With equal shares the factor is 1, and nothing is done. A rank that
trains alone has unequal shares, too: its micro-batches.

A backward pass is weighted as a whole. If samples of several weights were asked for since the last pass, it
is unknown whose gradients the next one computes: it is refused."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

UNWEIGHTED = (
    "step %d: the shares of the ranks, or their micro-batches, are not equally large, and nothing weighs "
    "them: the average over ranks of means over their samples is not the mean over the global batch. "
    "session.ddp weighs gradients; without it, multiply the loss with session.loss_weight before backward, "
    "or choose a global batch that the number of ranks divides. If it is a sum, there is nothing to do"
)


class Weighting:
    """The weight of this rank's share in the current step, applied to gradients of watched modules."""

    def __init__(self, tracked: Callable[[], list[torch.nn.Module]] = list) -> None:
        self._tracked = tracked  # gives the modules whose gradients count, where none is watched
        self.weight = 1.0
        self.by_script = False  # the script weighs its losses itself
        self._uneven = False  # this step has gradients that should have been weighted
        self._modules: list[weakref.ref[torch.nn.Module]] = []
        self._handles: list[RemovableHandle] = []
        self._asked: set[float] = set()  # weights asked for since the newest backward pass
        self._passed = False  # a backward pass has run since then

    def reset(self) -> None:
        """Begin a generation: its modules are wrapped again."""
        self._unhook()
        self._modules.clear()
        self._asked.clear()
        self.weight = 1.0

    def begin(self) -> None:
        """Begin a step."""
        self._asked.clear()
        self._uneven = False

    @property
    def left_out(self) -> bool:
        """Whether this step has gradients that should have been weighted, and nothing has done so."""
        return self._uneven and not (self.by_script or self._modules)

    def watch(self, module: torch.nn.Module) -> None:
        """Weight the gradients of this module too."""
        self._modules.append(weakref.ref(module))
        if self._handles:
            self._unhook()
            self._hook()

    def share(self, samples: int, global_batch: int, world_size: int) -> None:
        """Note how many samples of the step's global batch are this rank's. `world_size`: replicas."""
        self.weight = samples * world_size / global_batch
        if self.weight != 1.0 and not self._handles:  # until the generation ends
            self._passed = any(parameter.grad is not None for parameter in self._parameters())
            self._hook()
        if self._passed:
            self._asked.clear()
        self._asked.add(self.weight)
        self._passed = False

    def _hook(self) -> None:
        hook = self._weigh if self._modules else self._note
        self._handles = [parameter.register_hook(hook) for parameter in self._parameters()]  # type: ignore[no-untyped-call]

    def _parameters(self) -> list[torch.nn.Parameter]:
        modules = [module for reference in self._modules if (module := reference()) is not None]
        if not self._modules and not self.by_script:
            modules = self._tracked()
        found = {id(p): p for module in modules for p in module.parameters() if p.requires_grad}
        return list(found.values())

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _note(self, _: torch.Tensor) -> None:
        self._uneven = self._uneven or self.weight != 1.0

    def _weigh(self, gradient: torch.Tensor) -> Any:
        """Weight a gradient before it reaches DDP's reducer. A rank without samples may have a NaN loss: it
        gives 0.

        Raises SessionError."""
        self._passed = True
        if len(self._asked) > 1:
            raise SessionError(
                f"samples with the weights {sorted(self._asked)} were taken before this backward pass, but "
                "session.ddp gives one weight to a whole pass: the shares of several data sets, or of "
                "several micro-batches, are not equally large. Call backward for each before taking the "
                "next, or choose global batches that are multiples of the number of replicas, or use "
                "session.ddp(model, weighted=False) and multiply each loss with session.loss_weight, read "
                "after taking its samples"
            )
        if self.weight == 1.0:
            return None
        return gradient * self.weight if self.weight else torch.zeros_like(gradient)
