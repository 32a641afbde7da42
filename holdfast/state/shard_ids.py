"""Name the part of the state that a rank holds: ranks with equal shard ids hold equal state.

A shard id hashes which parts of DTensors the rank has, its coordinates in the layout where they decide (pp,
tp), and what the script claims of its objects (`per_rank`, `shard`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from holdfast.state import digest, shards
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.coordinates import Coordinates
    from holdfast.state.tracked import TrackedState

WHOLE = "all"
"""The shard id of a rank that holds the whole state, as all ranks do with plain data parallel."""


def of(tracked: TrackedState) -> str:
    """The shard id of this rank: ranks with equal ids hold equal state.

    It depends on parameters, buffers, the rank's coordinates and the script's claims, but not on optimizer
    state, which may not exist yet."""
    return _hashed(tracked, _identity(tracked))


def older(tracked: TrackedState) -> str:
    """The shard id as older checkpoints have it, from DTensors alone.

    "" if the script claims that objects differ between ranks: that id does not show it."""
    return "" if claimed(tracked) else _hashed(tracked, [])


def claimed(tracked: TrackedState) -> list[str]:
    """The names of objects that the script claims to differ between ranks."""
    claims = tracked.claims
    return [name for name in tracked.objects if claims[name].per_rank or claims[name].shard]


def staged(at: Coordinates) -> list[tuple[str, int]]:
    """The coordinates that decide which part of the model a rank has, as (axis, index).

    Ranks that differ only in dp or cp hold the same part."""
    return [
        (axis, place)
        for axis, place, size in (("pp", at.pp_rank, at.pp), ("tp", at.tp_rank, at.tp))
        if size > 1
    ]


def _identity(tracked: TrackedState) -> list[tuple[object, ...]]:
    """What distinguishes this rank's part of the state, besides its parts of DTensors."""
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


def _hashed(tracked: TrackedState, identity: list[tuple[object, ...]]) -> str:
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
    """A shard id as a number that fits into a message between ranks."""
    return digest.number(shard.encode())


def _named(tracked: TrackedState) -> Iterator[tuple[str, torch.Tensor]]:
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.nn.Module):
            yield from ((f"{name}.{key}", tensor) for key, tensor in thing.named_parameters())
            yield from ((f"{name}.{key}", tensor) for key, tensor in thing.named_buffers())
        elif isinstance(thing, torch.optim.Optimizer):
            yield from _parameters(name, thing)


def _parameters(name: str, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    return ((f"{name}.{index}", parameter) for index, parameter in enumerate(parameters_of(optimizer)))
