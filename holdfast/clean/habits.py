"""Learn from whole steps what moves in a step, to tell whether everything has moved in a broken one.

A part that does not behave alike in all whole steps (an average taken every ten steps) proves nothing,
whether it has moved or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import shards
from holdfast.state.digest import same_bits

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping


class StepPattern:
    """How each part of the state has moved in every whole step since `forget`.

    Parts are named `object.path`. The parts of a small object belong together: if one of them moves in every
    whole step (a scheduler's counter), others of it may move in some steps only (its rate)."""

    def __init__(self) -> None:
        self._known: dict[str, Hashable] | None = None
        self._unsteady: set[str] = set()

    def forget(self) -> None:
        """Start again: other objects are watched now."""
        self._known, self._unsteady = None, set()

    def observe(self, behaviour: Mapping[str, Hashable]) -> None:
        """Learn how each part behaved in a whole step."""
        if self._known is not None:
            self._unsteady |= _different(behaviour, self._known)
        self._known = dict(behaviour)

    def unusual(self, behaviour: Mapping[str, Hashable], small: Collection[str]) -> str:
        """Why a step that behaves like this may not be whole; "" if it behaves like every whole one.

        `small`: the names of the small objects."""
        if self._known is None:
            return "no complete step has been seen yet"
        steady = {
            name.partition(".")[0]
            for name, behaves in self._known.items()
            if behaves is True and name not in self._unsteady
        }
        unknown = {
            n for n in self._unsteady if (root := n.partition(".")[0]) not in small or root not in steady
        }
        if unknown:
            return f"{min(unknown)} changes only in some complete steps"
        odd = _different(behaviour, self._known) - self._unsteady
        return f"{min(odd)} has not changed as in a complete step" if odd else ""


def _different(left: Mapping[str, Hashable], right: Mapping[str, Hashable]) -> set[str]:
    return {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}


def moved(before: Any, after: Any, path: str) -> dict[str, bool]:
    """By path, whether each leaf of a small tree has changed. A list is one leaf, however long it is."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: dict[str, bool] = {}
        for key in [*before, *(key for key in after if key not in before)]:
            found |= moved(before.get(key), after.get(key), f"{path}.{key}")
        return found
    return {path: not _same(before, after)}


def _same(left: Any, right: Any) -> bool:
    """Whether two trees are equal, with numbers compared by their bits: NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return _same_tensors(shards.local(left), shards.local(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float):
        return float.hex(left) == float.hex(right)
    return bool(left == right)


def _same_tensors(left: torch.Tensor, right: torch.Tensor) -> bool:
    if (left.shape, left.dtype, left.device) != (right.shape, right.dtype, right.device):
        return False
    return same_bits(left, right)
