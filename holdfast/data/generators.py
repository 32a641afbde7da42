"""Seed the random generators that data sets, samplers and collate functions hold themselves.

Such a generator (`self.rng = numpy.random.default_rng(0)`) goes on from sample to sample: in a process that
takes a dead rank's place it would begin anew, and its samples would differ. This also runs in DataLoader's
workers, so it may not import anything that holds a session."""

from __future__ import annotations

import functools
import os
import random
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import SessionError
from holdfast.state.randomness import mix

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH, _LENGTH, _THINGS = 6, 64, 2000
"""How deep, into how long collections, and at how many things it is looked."""
_MASK = (1 << 64) - 1
_LEAVES = (torch.Tensor, str, bytes, int, float, type, types.ModuleType)


class OwnGenerators:
    """The generators that these things hold, and what they consist of."""

    def __init__(self, *things: Any) -> None:
        self._things = things
        self._process = -1
        self._found: list[Any] = []
        self.look()

    def __bool__(self) -> bool:
        return bool(self._found)

    def look(self) -> bool:
        """Look for them (again). Returns whether there are more than before."""
        known = len(self._found)
        seen: set[int] = set()
        self._found = [each for thing in self._things for each in _held(thing, seen, _DEPTH)]
        return len(self._found) > known

    def made(self) -> bool:
        """Whether the first sample that this process has fetched has made a generator: then what it drew was
        not seeded."""
        if self._process == os.getpid():
            return False
        self._process = os.getpid()
        return self.look()

    def seed(self, value: int) -> None:
        """Seed each of them from this number."""
        for place, each in enumerate(self._found, 1):
            _seed(each, mix(value ^ place) >> 1)


def seed_evaluation(loader: Any, seed: int, step: int, rank: int) -> None:
    """Seed the generators that a loader of an evaluation holds: it is opened in this step, by this rank."""
    OwnGenerators(loader.dataset, loader.collate_fn).seed(mix(mix(mix(seed & _MASK) ^ step) ^ rank))


def refuse_late(collate: Any) -> None:
    """Raise SessionError for a collate function of transformers whose generator is made at its first call."""
    if getattr(collate, "seed", None) is not None and hasattr(collate, "create_rng"):
        raise SessionError(
            f"{type(collate).__name__}(seed=...) is not supported under Holdfast: its generator begins anew "
            "in a process that takes a dead rank's place. Leave seed out: Holdfast seeds each batch"
        )


def _seed(generator: Any, value: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(value)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = type(generator.bit_generator)(value).state
    else:
        generator.seed(value & 0xFFFFFFFF)


def _kinds() -> tuple[type, ...]:
    numpy: Any = sys.modules.get("numpy.random")
    kinds = (torch.Generator, random.Random)
    return (*kinds, numpy.Generator, numpy.RandomState) if numpy is not None else kinds


def _held(thing: Any, seen: set[int], depth: int) -> Iterator[Any]:
    if id(thing) in seen or len(seen) > _THINGS:
        return
    if isinstance(thing, _kinds()):
        seen.add(id(thing))
        yield thing
    elif depth and not isinstance(thing, _LEAVES):
        seen.add(id(thing))
        for each in _parts(thing):
            yield from _held(each, seen, depth - 1)


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict | list | tuple):
        if len(thing) > _LENGTH:
            return []
        return list(thing.values() if isinstance(thing, dict) else thing)
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, types.MethodType):
        return [thing.__self__]
    if isinstance(thing, types.FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or () if _is_full(cell)]
    return list(getattr(thing, "__dict__", {}).values())


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
