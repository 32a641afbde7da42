"""Notice that tracked objects are built differently than before.

That is another submodule or tensor object, a name that came or went, or memory that is read in another form.
Counting entries proves nothing: `agent.target = copy.deepcopy(agent.online)` leaves the count as it was. So
the objects themselves are compared, at every step: a pass over dicts that reads no values."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_, methodcaller
from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Container = dict[Any, Any]
"""A dict in which a module keeps its parameters, buffers or submodules, or an optimizer the state of a
parameter."""

_values = methodcaller("values")
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")


def same_objects(left: Iterable[object], right: Sequence[object]) -> bool:
    """Whether these are the same objects in the same order."""
    now = list(left)
    return len(now) == len(right) and all(map(is_, now, right))


class Entries:
    """What these dicts hold."""

    def __init__(self, named: Iterable[Container], held: Iterable[Container]) -> None:
        """Record the names in `named` and the objects in `held`, which are some of the former."""
        dicts = list(named)
        self._empty = [container for container in dicts if not container]  # most are
        self._named = [container for container in dicts if container]
        self._lengths = list(map(len, self._named))
        self._names = list(chain.from_iterable(self._named))
        self._held = [container for container in held if container]
        self.objects = list(chain.from_iterable(map(_values, self._held)))

    def same(self) -> bool:
        """Whether the dicts hold the same objects under the same names."""
        if any(self._empty) or list(map(len, self._named)) != self._lengths:
            return False
        if list(chain.from_iterable(self._named)) != self._names:
            return False
        return all(map(is_, chain.from_iterable(map(_values, self._held)), self.objects))


class Forms:
    """Where the memory of tensors is, and how it is read (strides, shape, dtype). Sparse tensors are left
    out: they have no single memory."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._plain: list[torch.Tensor] = []
        self._cut: list[torch.Tensor] = []
        for tensor in tensors:
            if shards.is_dtensor(tensor):
                self._cut.append(tensor)
            elif tensor.layout is torch.strided:
                self._plain.append(tensor)
        self._known = self._look()

    def same(self) -> bool:
        """Whether memory and form of all tensors are as they were. A weight transposed in place has another
        form."""
        return self._look() == self._known

    def _look(self) -> tuple[list[Any], ...]:
        live = [*self._plain, *map(shards.local, self._cut)] if self._cut else self._plain
        return _forms(live)


def read_alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two plain tensors have the same memory and the same form; always true for sparse ones."""
    return left.layout is not torch.strided or _forms([left]) == _forms([right])


def _forms(tensors: list[torch.Tensor]) -> tuple[list[Any], ...]:
    return (
        list(map(torch.Tensor.data_ptr, tensors)),
        list(map(torch.Tensor.stride, tensors)),
        list(map(_shape, tensors)),
        list(map(_dtype, tensors)),
    )


def entries(modules: Iterable[torch.nn.Module], *, buffers: bool) -> Entries:
    """What these modules hold. `buffers`: a buffer replaced by another object counts as a change too."""
    parts = list(modules)
    named = [c for part in parts for c in (part._parameters, part._buffers, part._modules)]
    held = [c for part in parts for c in (part._parameters, part._modules)]
    return Entries(named, named if buffers else held)


class Submodules:
    """The submodules and tensor names of modules at a step's start, for a step that is undone."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        parts = list(modules)
        self._children = [(part._modules, dict(part._modules)) for part in parts]
        self._names = [(c, set(c)) for part in parts for c in (part._parameters, part._buffers)]

    def put_back(self) -> None:
        """Restore the same submodules, and remove parameters and buffers that were added since."""
        for container, kept in self._children:
            if list(container) != list(kept) or not same_objects(container.values(), list(kept.values())):
                container.clear()
                container.update(kept)
        for tensors, names in self._names:
            for name in set(tensors) - names:
                del tensors[name]
