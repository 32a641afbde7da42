"""Read this rank's part of DTensors, and make DTensors from parts.

A process that has not loaded torch.distributed.tensor has no DTensors, and does not load it here."""

from __future__ import annotations

import sys
from typing import Any

import torch

from holdfast.errors import RestoreError, SessionError

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
