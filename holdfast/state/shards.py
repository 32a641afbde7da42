"""What of the state is this rank's own: its parts of DTensors, what the script claims, a word for all of it.

A process that has not loaded torch.distributed.tensor has no DTensors, and does not load it for us."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import RestoreError, SessionError
from holdfast.state import digest
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.coordinates import Coordinates
    from holdfast.state.tracked import Tracked

WHOLE = "all"
"""The word of a rank whose state is whole: every rank holds all of it."""

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape of the whole tensor, and where in it the local one begins."""


def is_dtensor(value: Any) -> bool:
    """Whether it is a DTensor."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(value, kind)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The live memory of this rank's part; the tensor itself when it is no DTensor."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():  # else it would be a view that autograd knows of
        part: torch.Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def place(tensor: Any, path: str) -> Place | None:
    """Where this rank's part lies in the whole; None when it is no DTensor. Raises SessionError."""
    if not is_dtensor(tensor):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in tensor.placements):
        raise SessionError(f"{path}: a DTensor with a pending sum cannot be kept: redistribute it first")
    whole = tuple(tensor.shape)
    _, offset = compute_local_shape_and_global_offset(whole, tensor.device_mesh, tensor.placements)
    return whole, tuple(int(start) for start in offset) or (0,) * len(whole)


def like(part: torch.Tensor, model: Any, path: str) -> torch.Tensor:
    """A DTensor of this local part, laid out as `model` is. Raises RestoreError when their shapes differ."""
    if part.shape != model.to_local().shape:
        raise RestoreError(f"{path}: a shard of {tuple(part.shape)} beside a parameter of another shape")
    made: torch.Tensor = type(model).from_local(
        part.to(model.to_local().device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )
    return made


def word(tracked: Tracked) -> str:
    """What part of the state this rank holds: equal words, equal state. It depends on parameters, buffers,
    the rank's place and the script's claims, so it is the same before the optimizer has its state."""
    return _word(tracked, _identity(tracked))


def older_word(tracked: Tracked) -> str:
    """The word that knew of DTensors alone, which older checkpoints have; "" when it says too little."""
    return "" if claimed(tracked) else _word(tracked, [])


def claimed(tracked: Tracked) -> list[str]:
    """The objects whose state is not that of all ranks, by the script's claim."""
    claims = tracked.claims
    return [name for name in tracked.objects if claims[name].per_rank or claims[name].shard]


def staged(at: Coordinates) -> list[tuple[str, int]]:
    """The coordinates that decide which part of the model a rank has: ranks that differ in dp or cp alone
    hold the same."""
    return [
        (axis, place)
        for axis, place, size in (("pp", at.pp_rank, at.pp), ("tp", at.tp_rank, at.tp))
        if size > 1
    ]


def _identity(tracked: Tracked) -> list[tuple[object, ...]]:
    """What makes this rank's part of the state its own, besides its parts of DTensors."""
    found: list[tuple[object, ...]] = list(staged(tracked.at))
    for name in tracked.objects:
        claim = tracked.claims[name]
        if claim.per_rank:
            found.append((name, "rank", *tracked.at.sizes, *tracked.at.place))
        elif claim.shard:
            found.append((name, "shard", claim.shard))
    if tracked.scattered:
        found.append(("buffers", *tracked.at.sizes, *tracked.at.place))
    return found


def _word(tracked: Tracked, identity: list[tuple[object, ...]]) -> str:
    found = hashlib.blake2s(digest_size=7)
    whole = True
    for path, tensor in _named(tracked):
        placed = place(tensor, path)
        if placed is None:
            continue
        part = tuple(local(tensor).shape)
        whole = whole and part == placed[0]
        found.update(repr((path, placed[1], part)).encode())
    if identity:
        found.update(repr(identity).encode())
    return WHOLE if whole and not identity else found.hexdigest()


def number(shard: str) -> int:
    """A word as a number that fits a message between ranks."""
    return digest.number(shard.encode())


def _named(tracked: Tracked) -> Iterator[tuple[str, torch.Tensor]]:
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.nn.Module):
            yield from ((f"{name}.{key}", tensor) for key, tensor in thing.named_parameters())
            yield from ((f"{name}.{key}", tensor) for key, tensor in thing.named_buffers())
        elif isinstance(thing, torch.optim.Optimizer):
            yield from _parameters(name, thing)


def _parameters(name: str, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    return ((f"{name}.{index}", parameter) for index, parameter in enumerate(parameters_of(optimizer)))
