"""Refuse by name what cannot be kept exactly in a loop with Fabric."""

from __future__ import annotations

from typing import Any, NoReturn

from torch.utils.data import DistributedSampler, IterableDataset, SequentialSampler

from holdfast.errors import SessionError
from holdfast.integrations.placed import counting_samplers, order_of

_STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")


def check_strategy(strategy: Any) -> None:
    """Raise SessionError for a strategy that is not DDP's."""
    if isinstance(strategy, str) and strategy in _STRATEGIES:
        return
    name = repr(strategy) if isinstance(strategy, str) else type(strategy).__name__
    refuse(
        f"strategy={name}", 'give "ddp", or leave it out; DDP\'s options are arguments of Fabric(ddp={...})'
    )


def check_optimizer(optimizer: Any) -> None:
    """Raise SessionError for an optimizer whose state is divided among ranks by itself."""
    if hasattr(optimizer, "consolidate_state_dict"):
        refuse("ZeroRedundancyOptimizer", "use a plain optimizer")


def check_training(loader: Any) -> None:
    """Raise SessionError for a training's loader whose batches have no positions."""
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        refuse("a training loader without positions", "give a map data set (with __getitem__ and __len__)")
    sampler = order_of(loader)
    if not isinstance(sampler, DistributedSampler | SequentialSampler):
        refuse(
            f"a training loader with a {type(sampler).__name__}",
            "its order must follow from seed and epoch: give shuffle=True or False",
        )
    for each in counting_samplers(loader):
        refuse(
            f"a training loader with a {type(each).__name__} without set_epoch",
            "what it counts itself begins anew in another process: give it set_epoch(epoch), and have its "
            "order follow from that",
        )


def refuse(name: str, why: str) -> NoReturn:
    """Raise SessionError."""
    raise SessionError(f"Fabric under Holdfast: {name} is not supported: {why}")
