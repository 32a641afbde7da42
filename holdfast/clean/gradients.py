"""Decide whether gradients cross a step boundary. They are part of no saved state."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import modes, shards
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_LOOKS = 2


class Uncleared:
    """Recognizes optimizers whose gradients still count after they have stepped.

    Nothing clears such gradients before more is added to them. That is seen when a backward pass adds to a
    parameter of the optimizer that still has a gradient."""

    def __init__(self) -> None:
        self._found: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._hooks: dict[int, Any] = {}  # by the optimizer's index: the hook on one of its parameters
        # By the optimizer's index: whether every gradient of this step was added to another.
        self._added: dict[int, bool] = {}

    def __contains__(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer in self._found

    def arm(self) -> None:
        """Forget the hooks: other optimizers are watched from now on."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks, self._added = {}, {}

    def begin(self) -> None:
        """Begin a step."""
        self._added.clear()

    def before(self, index: int, optimizer: torch.optim.Optimizer) -> None:
        """Note that this optimizer begins to step, for the first time in this step."""
        if self._added.get(index):
            self._found.add(optimizer)
        if index not in self._hooks:
            chosen = next(filter(_is_dense, parameters_of(optimizer)), None)
            if chosen is not None:
                adding = self._adding(index, weakref.ref(chosen))
                self._hooks[index] = chosen.register_hook(adding)  # type: ignore[no-untyped-call]

    def _adding(self, index: int, parameter: Any) -> Any:
        def hook(_: torch.Tensor) -> None:
            there = parameter()
            self._added[index] = self._added.get(index, True) and there is not None and _has_gradient(there)

        return hook


class Standing:
    """Recognizes scripts whose gradients stay from step to step, as zeros: `zero_grad(set_to_none=False)`.

    There an optimizer also steps what a step has not used: with its momentum and weight decay. So it counts
    which parameters have a gradient. A gradient that stays is the same memory, written more often at each
    boundary; one that is made anew has been written as often as the one before. Until two boundaries with
    gradients were seen, they are taken to stay."""

    def __init__(self) -> None:
        self._looks = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self._stay = False

    def look(self, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A step begins. Returns those that have a gradient, if that counts."""
        if self._looks >= _LOOKS:
            return self.of(parameters)
        graded = [each for each in parameters if each.grad is not None and not each.grad.is_sparse]
        seen = {id(each): _written(each) for each in graded}
        both = [(self._seen[key], now) for key, now in seen.items() if key in self._seen]
        self._stay = self._stay or any(then[0] == now[0] and then[1] < now[1] for then, now in both)
        self._looks += bool(both)
        self._seen = seen if self._looks < _LOOKS else {}
        return graded

    def of(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Those that have a gradient, if that counts."""
        if self._looks >= _LOOKS and not self._stay:
            return []
        return [parameter for parameter in parameters if _is_dense(parameter)]


def carried(optimizers: Sequence[torch.optim.Optimizer], steps: Sequence[int], uncleared: Uncleared) -> bool:
    """Whether gradients may count in the next step.

    `steps`: how often each optimizer has stepped in this step. An optimizer that has stepped has used its
    gradients up, unless it was seen not to clear them. One that has not may use them later: they are carried,
    unless all of them are zero or gone."""
    return any(
        (not count or optimizer in uncleared) and left(parameters_of(optimizer))
        for optimizer, count in zip(optimizers, steps, strict=True)
    )


def left(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether one of these parameters has a gradient that is not zero."""
    return any(map(_has_gradient, parameters))


def drop(modules: Iterable[torch.nn.Module], but: Iterable[torch.Tensor] = ()) -> None:
    """Drop all gradients of these modules, `but` for those of some parameters, which become zeros."""
    zeroed = {id(parameter) for parameter in but}
    for module in modules:
        for parameter in module.parameters():
            if id(parameter) in zeroed:
                modes.zero_gradient(parameter)
            else:
                parameter.grad = None


def _is_dense(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and not gradient.is_sparse


def _written(parameter: torch.Tensor) -> tuple[int, int]:
    """Where a gradient is, and how often it was written."""
    assert parameter.grad is not None
    return shards.local(parameter.grad).data_ptr(), parameter.grad._version


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    if gradient is None:
        return False
    return gradient.is_sparse or bool(torch.count_nonzero(shards.local(gradient.detach())))
