"""List the parameters that an optimizer steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The optimizer's parameters, group by group: the order in which its state_dict numbers them."""
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
