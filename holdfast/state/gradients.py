"""Gradients at a step's boundary: part of no state that is kept, and sometimes left for the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from holdfast.state import shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def carried(optimizers: Sequence[torch.optim.Optimizer], steps: Sequence[int]) -> bool:
    """Whether gradients may count in the next step. `steps`: how often each optimizer has stepped in this
    one.

    Those of an optimizer that has stepped are used up. One that has not may step with them later: they are
    carried, unless all of them are zero or gone."""
    return any(
        not count and any(map(_has_gradient, _parameters(optimizer)))
        for optimizer, count in zip(optimizers, steps, strict=True)
    )


def drop(modules: Iterable[torch.nn.Module]) -> None:
    """Forget all gradients of these modules."""
    for module in modules:
        for parameter in module.parameters():
            parameter.grad = None


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    if gradient is None:
        return False
    return gradient.is_sparse or bool(torch.count_nonzero(shards.local(gradient.detach())))
