"""Read this rank's part of DTensors, and make DTensors from parts.

A process that has not loaded torch.distributed.tensor has no DTensors, and does not load it here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import RestoreError, SessionError

if TYPE_CHECKING:
    from collections.abc import Iterable

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape of the whole tensor, and where in it the local part begins."""


def is_dtensor(value: Any) -> bool:
    """Whether the value is a DTensor."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(value, kind)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The live memory of this rank's part; the tensor itself if it is not a DTensor."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():  # else autograd would record it as a view
        part: torch.Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def place(tensor: Any, path: str) -> Place | None:
    """Where this rank's part lies in the whole; None if it is not a DTensor. Raises SessionError."""
    if not is_dtensor(tensor):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in tensor.placements):
        raise SessionError(f"{path}: a DTensor with a pending sum cannot be kept: redistribute it first")
    whole = tuple(tensor.shape)
    _, offset = compute_local_shape_and_global_offset(whole, tensor.device_mesh, tensor.placements)
    return whole, tuple(int(start) for start in offset) or (0,) * len(whole)


def like(part: torch.Tensor, model: Any, path: str) -> torch.Tensor:
    """A DTensor with this local part, laid out like `model`. Raises RestoreError if their shapes differ."""
    if part.shape != model.to_local().shape:
        raise RestoreError(f"{path}: its shard has shape {tuple(part.shape)}, the parameter another")
    made: torch.Tensor = type(model).from_local(
        part.to(model.to_local().device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )
    return made


class ShardedModules:
    """The modules of FSDP2 within some modules.

    A forward pass without a backward pass (an evaluation, with `reshard_after_forward=False`) leaves the
    gathered parameters in the place of the shards: copies, perhaps rounded to the type of the computation,
    whose memory FSDP frees. What is kept and compared at a boundary are the shards."""

    def __init__(self, modules: Iterable[torch.nn.Module] = ()) -> None:
        kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
        every = (part for module in modules if kind is not None for part in module.modules())
        self._modules: list[Any] = [part for part in every if isinstance(part, kind)]  # type: ignore[arg-type]

    def hold(self) -> None:
        """Have each hold its shards again. Nothing is sent; those that hold them are left alone."""
        for module in self._modules:
            module.reshard()
