"""Name the part of the state that a rank holds: ranks with equal shard ids hold equal state.

A shard id hashes which parts of DTensors the rank has, its place in the layout where that decides (pp, tp),
and what the script claims of its objects (`per_rank`, `shard`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from holdfast.state import digest, shards
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.coordinates import Coordinates
    from holdfast.state.tracked import Tracked

WHOLE = "all"
"""The shard id of a rank whose state is whole: every rank holds all of it."""


def of(tracked: Tracked) -> str:
    """The shard id of this rank: equal ids, equal state. It depends on parameters, buffers,
    the rank's place and the script's claims, so it is the same before the optimizer has its state."""
    return _hashed(tracked, _identity(tracked))


def older(tracked: Tracked) -> str:
    """The id by DTensors alone, which older checkpoints have; "" when it says too little."""
    return "" if claimed(tracked) else _hashed(tracked, [])


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


def _hashed(tracked: Tracked, identity: list[tuple[object, ...]]) -> str:
    found = hashlib.blake2s(digest_size=7)
    whole = True
    for path, tensor in _named(tracked):
        placed = shards.place(tensor, path)
        if placed is None:
            continue
        part = tuple(shards.local(tensor).shape)
        whole = whole and part == placed[0]
        found.update(repr((path, placed[1], part)).encode())
    if identity:
        found.update(repr(identity).encode())
    return WHOLE if whole and not identity else found.hexdigest()


def number(shard: str) -> int:
    """A shard id as a number that fits a message between ranks."""
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
