"""List the parameters that an optimizer steps."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The optimizer's parameters, group by group: the order in which its state_dict numbers them."""
    return chain.from_iterable([group["params"] for group in optimizer.param_groups])
