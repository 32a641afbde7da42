"""Reach the state inside wrapped models and optimizers if it is exact; refuse by name what cannot be kept.

Nothing is imported for this: a wrapper whose module is not loaded cannot occur."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import SessionError
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from holdfast.state.claims import Claim


def check(name: str, thing: Any) -> None:
    """Raise SessionError for objects that hide their tensors (the flat parameters of FSDP1) or steps."""
    if isinstance(thing, torch.optim.Optimizer) and not hasattr(thing, "_optimizer_step_pre_hooks"):
        raise SessionError(
            f"track({name}=...): {type(thing).__name__} is an Optimizer and has not called "
            "Optimizer.__init__, so nothing learns of its steps: call super().__init__(params, defaults) "
            "in its __init__; or, if it wraps another optimizer, derive it from no class and track both"
        )
    if isinstance(thing, torch.nn.Module):
        flat = _known("torch.distributed.fsdp", "FullyShardedDataParallel")
        found = flat is not None and any(isinstance(module, flat) for module in thing.modules())
    elif isinstance(thing, torch.optim.Optimizer):
        found = any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters_of(thing))
    else:
        found = False
    if found:
        raise SessionError(
            f"track({name}=...): the flat parameters of FSDP1 (FullyShardedDataParallel) cannot be kept: "
            "they differ by rank and its state_dict gives copies; use fully_shard (FSDP2) instead"
        )


def claim(thing: Any, claimed: Claim) -> Claim:
    """The claim that holds for an object. With ZeroRedundancyOptimizer each rank has its own part."""
    return replace(claimed, per_rank=True, shard="") if _is_zero(thing) else claimed


def local(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that holds this rank's state.

    For ZeroRedundancyOptimizer it is the one inside, given the options that the outer groups have now."""
    if not _is_zero(optimizer):
        return optimizer
    inner: torch.optim.Optimizer = optimizer.optim  # type: ignore[attr-defined]
    _align(optimizer, inner)
    return inner


def aligned(optimizer: torch.optim.Optimizer) -> None:
    """After the inner optimizer's state was restored, give its options to the outer groups."""
    if _is_zero(optimizer):
        _align(optimizer.optim, optimizer)  # type: ignore[attr-defined]


def _align(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Copy the options of one optimizer's groups to another's."""
    for given, group in zip(source.param_groups, target.param_groups, strict=True):
        group.update({key: value for key, value in given.items() if key != "params"})


def _is_zero(thing: Any) -> bool:
    kind = _known("torch.distributed.optim", "ZeroRedundancyOptimizer")
    return kind is not None and isinstance(thing, kind)


def _known(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
