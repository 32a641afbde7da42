"""Notice attributes of a script's own objects that change in the training, where nothing keeps them.

Theory of operation. What a class of a framework stores in its instances is found in the code of its
methods; every other attribute is the script's. A mark of each one is taken now and then: a number,
a text, the end of a collection, the state of a random generator, some tensors of a module, which function
or class it is. An attribute whose
mark has changed is named once, in a warning."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import logging
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from holdfast.clean.looks.bits import bits_of
from holdfast.clean.looks.reach import numbers_of, reached
from holdfast.state import modes, randomness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FRAMEWORKS = frozenset(
    {"transformers", "accelerate", "lightning", "pytorch_lightning", "torch", "torchmetrics", "holdfast"}
)
_ENDS, _BYTES, _DEPTH = 16, 512, 2
"""How much of a collection or an array makes its mark, and how deep objects in attributes are looked into."""
_LOOKS = 3
_CALLED = (type, types.FunctionType, types.BuiltinFunctionType)
_BY_NAME = frozenset({"setattr", "__setattr__", "__dict__", "vars"})
"""How code sets an attribute whose name is a text."""
_TOLD = (
    "%s: %s.%s changes in the training and is not kept: it begins anew in a process that takes a dead rank's "
    "place, and what a step that runs again does to it is done twice. %s"
)
IsKept = Callable[[Any, str, Any], bool]
log = logging.getLogger("holdfast.sdk")


def _none(_owner: Any, _name: str, _value: Any) -> bool:
    return False


class OwnAttributes:
    """What has been seen of the attributes of some objects. In words: `what` loses them, and how to `keep`
    them."""

    def __init__(self, what: str, keep: str) -> None:
        self._what, self._keep = what, keep
        self._marks: dict[tuple[int, str], str] = {}
        self._told: set[tuple[int, str]] = set()
        self._steps = 0

    def step_ended(
        self,
        owners: Iterable[Any],
        is_kept: IsKept = _none,
        trained: Iterable[torch.nn.Module] = (),
        data: Iterable[Any] = (),
    ) -> None:
        """A step has ended: look after the first ones."""
        self._steps += 1
        if self._steps <= _LOOKS:
            self.look(owners, is_kept, trained, data)

    def look(
        self,
        owners: Iterable[Any],
        is_kept: IsKept = _none,
        trained: Iterable[torch.nn.Module] = (),
        data: Iterable[Any] = (),
    ) -> None:
        """Warn of each attribute that has changed since the last look, but for those that something keeps:
        `is_kept(owner, name, value)`. `trained`: tracked modules; their tensors are kept. `data`: owners that
        give samples; their random generators are seeded for each one."""
        kept = frozenset(storage for module in trained for storage in modes.storages(module))
        for owner, seeded in (*((each, False) for each in owners), *((each, True) for each in data)):
            for name, value in _watched(owner):
                key, mark = (id(owner), name), _mark(value, _DEPTH, kept, seeded)
                changed = self._marks.get(key, mark) != mark
                self._marks[key] = mark
                if changed and key not in self._told and not is_kept(owner, name, value):
                    self._told.add(key)
                    log.warning(_TOLD, self._what, type(owner).__name__, name, self._keep)


def _watched(owner: Any) -> Iterator[tuple[str, Any]]:
    yield from attributes_of(owner)
    if isinstance(owner, torch.nn.Module) and type(owner).__module__.startswith("torch.nn."):
        yield from numbers_of(owner)
    elif isinstance(owner, torch.nn.Module) and not is_framework(type(owner)):
        yield from ((name, type(each)) for name, each in owner._modules.items())


def is_framework(kind: Any) -> bool:
    """Whether this class or function is a framework's, not a script's."""
    return str(kind.__module__).partition(".")[0] in _FRAMEWORKS


def attributes_of(owner: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that the script's own classes have put into an object."""
    if not is_framework(type(owner)):
        kind: Any = type(owner)
        theirs = _stored(kind)
        yield from ((name, value) for name, value in list(vars(owner).items()) if name not in theirs)


@functools.cache
def _stored(kind: Any) -> frozenset[str]:
    """Names that the code of those bases of a class that are a framework's gives to attributes."""
    codes = [code for base in kind.__mro__ if is_framework(base) for code in _codes(vars(base).values())]
    return frozenset(name for code in codes for name in _given(code))


def _given(code: types.CodeType) -> Iterator[str]:
    """The attributes that this code sets, and private ones that it reads: others of its package set them."""
    steps = dis.get_instructions(code)
    yield from (str(each.argval) for each in steps if each.opname == "STORE_ATTR")
    yield from (name for name in code.co_names if name.startswith("_"))
    if not _BY_NAME.isdisjoint(code.co_names):
        yield from (each for each in code.co_consts if isinstance(each, str))


def _codes(members: Iterable[Any]) -> Iterator[types.CodeType]:
    for member in members:
        parts = (member.fget, member.fset) if isinstance(member, property) else (member,)
        for part in parts:
            function = inspect.unwrap(getattr(part, "__func__", part)) if callable(part) else None
            pending = (
                [code] if isinstance(code := getattr(function, "__code__", None), types.CodeType) else []
            )
            while pending:
                yield (found := pending.pop())
                pending += [each for each in found.co_consts if isinstance(each, types.CodeType)]


def _mark(value: Any, depth: int, kept: frozenset[int], seeded: bool) -> str:
    """What differs, in practice, when a value has changed; "" for what is not looked at. `kept`: the
    addresses of memory that is. `seeded`: random generators are not looked at."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return f"{value.shape} {value.tobytes()[:_BYTES]!r}"
    if isinstance(value, torch.Tensor):
        return _mark_of_tensor(value, kept)
    if randomness.is_generator(value):
        return "" if seeded else str(hash(randomness.bits_of(value)))
    if isinstance(value, torch.nn.Module):
        value = [*value.parameters(), *value.buffers(), *_added_up(value)]
    if isinstance(value, dict | list | tuple | deque | set | frozenset):
        every = [*value, *value.values()] if isinstance(value, dict) else list(value)
        return f"{len(every)} " + " ".join(_mark(each, depth, kept, seeded) for each in every[-_ENDS:])
    return _mark_of_object(value, depth, kept, seeded)


def _added_up(module: torch.nn.Module) -> Iterator[Any]:
    """What metrics of torchmetrics have added up: it is in no state of theirs."""
    for each in module.modules():
        yield from (getattr(each, name, None) for name in getattr(each, "_defaults", ()))


def _mark_of_tensor(tensor: torch.Tensor, kept: frozenset[int]) -> str:
    if is_lazy(tensor) or tensor.is_meta or tensor.layout is not torch.strided:
        return ""
    seen = () if modes.storage(tensor) in kept else tensor.detach().flatten()[:1].tolist()
    return f"{tuple(tensor.shape)} {seen}"


def _mark_of_object(value: Any, depth: int, kept: frozenset[int], seeded: bool) -> str:
    if type(value) is types.MethodType or (type(value) is types.FunctionType and is_framework(value)):
        return ""  # a `forward` that a framework has replaced, and put back
    if isinstance(value, _CALLED) or not hasattr(value, "__dict__"):
        held = itertools.islice(reached((), (), {"": [value]}), _ENDS)
        return " ".join(repr(bits_of(each, kept)) for _, each in held)
    if not depth or any(map(is_framework, type(value).__mro__)):
        return ""
    parts = getattr(value, "__dict__", {}).items()
    return " ".join(f"{name}={_mark(each, depth - 1, kept, seeded)}" for name, each in parts)
