"""Tell what a script keeps from what it becomes, by a few bytes of each value.

Theory of operation. Looks at one value are compared with each other, in one process. So a look holds what
is cheap to read and differs, in practice, when the value has changed: numbers and texts themselves; how long
collections are, and of plain items all of them; some words of tensors; the state of random generators; how
far iterators and files are read; of functions and classes which ones they are. Objects of the script's
classes are entered (`reach`) and looked at part by part; of one that was there before, and is held in
another place now, it is told which one it is. No code of theirs is run."""

from __future__ import annotations

import array
import contextvars
import ctypes
import functools
import gc
import itertools
import operator
import os
import re
import sys
import time
import weakref
import zlib
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean.looks import others, streams
from holdfast.clean.looks.reach import ITEMS_MAX, PLAIN
from holdfast.clean.samples import VALUES, ChosenValues, loose_part
from holdfast.state import digest, randomness

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable

_WHOLE_BYTES, _ITEMS = 1 << 20, 1 << 20
"""Up to these sizes, arrays, and collections of plain items, are compared as a whole."""
_BEGINNING = re.compile(r"[^.\[]*(\.[^.\[]+)?")
_LAST = 3
"""Steps after which what the first one has made is told."""
_DEALING = (
    itertools.permutations,
    itertools.combinations,
    itertools.combinations_with_replacement,
    itertools.product,
)
"""Iterators that hold what they have given last."""
_TELLING = (Decimal, Fraction, PurePath, torch.dtype, torch.device)
"""Values that say all of what they are."""
_CLOCKS = (time.time, time.monotonic, time.perf_counter, time.process_time)
_CACHED = type(functools.cache(len))
_DRAWING = frozenset(
    {
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "normal", "normal_", "uniform"),
        *("uniform_", "bernoulli", "multinomial", "random", "randrange", "choice", "choices", "sample"),
        *("shuffle", "gauss", "beta", "integers", "standard_normal", "permutation"),
    }
)
"""What code calls that draws random numbers."""
COUNTING: dict[type[Any], tuple[str, ...]] = {
    torch.optim.lr_scheduler.LRScheduler: ("last_epoch", "num_bad_epochs"),
    torch.amp.GradScaler: ("_scale", "_growth_tracker"),
}
"""Objects of torch that a script has to track, and what in them tells that they have changed."""


@dataclass(frozen=True, eq=False)
class Which:
    """Which object a script holds in a place, among those of its class. `number`: its own; `since`: the look
    that has seen it first; `at`: this one."""

    kind: str
    number: int
    since: int
    at: int

    def __eq__(self, other: object) -> bool:
        """Whether it is the same one. One that was not there yet is told by what is in it: a step may make
        it anew each time."""
        if not isinstance(other, Which) or self.kind != other.kind:
            return False
        newer, older = (self, other) if self.at > other.at else (other, self)
        return newer.number == older.number or newer.since > older.at

    def __hash__(self) -> int:
        return hash(self.kind)


class ChosenObjects:
    """The networks, optimizers and objects of the script that looks have seen."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._looks = self._made = 0

    def look(self) -> None:
        """Another look begins."""
        self._looks += 1
        self._known = {at: row for at, row in self._known.items() if row[0]() is not None}

    def bits_of(self, thing: Any) -> Hashable:
        """Which one this is; None: that cannot be told."""
        row = self._known.get(id(thing))
        if row is None or row[0]() is not thing:
            if getattr(type(thing), "__weakrefoffset__", 0) <= 0:
                return None
            self._made += 1
            row = self._known[id(thing)] = weakref.ref(thing), self._made, self._looks
        return Which(_named(type(thing)), row[1], row[2], self._looks)


def bits_of(value: Any, kept: Container[int]) -> Hashable:
    """A few bytes that tell a value from what it becomes; None: it is not looked at. `kept`: addresses of
    memory that is tracked."""
    kind = type(value)
    if kind in PLAIN:
        return kind, hash(value) if kind in (str, bytes) else repr(value)
    if issubclass(kind, torch.Tensor):
        return _of_tensor(value, kept)
    if issubclass(kind, list | tuple | dict | set | frozenset | deque):
        return _of_items(value)
    if randomness.is_generator(value):
        return randomness.bits_of(value)
    return _of_others(value)


def _of_others(value: Any) -> Hashable:
    if (called := _of_called(value)) is not None:
        return called
    if counting := _counting(value):
        return tuple(repr(getattr(value, name, None)) for name in counting)
    for read in (_of_iterator, streams.bits_of, _of_memory, _of_telling):
        if (bits := read(value)) is not None:
            return bits
    return None


def _counting(value: Any) -> tuple[str, ...]:
    """The attributes of an object of torch that tell that it has changed; (): it is not looked at."""
    if others.is_restarting(value):
        return ("_num_yielded",)
    return next((names for base, names in COUNTING.items() if issubclass(type(value), base)), ())


def _of_items(value: Any) -> Hashable:
    """How many there are; of a dictionary which keys; and of many numbers and texts, which ones."""
    if len(value) > _ITEMS:
        return len(value), 0, 0
    if isinstance(value, set | frozenset):
        return len(value), 0, hash(frozenset(value)) if are_plain(value) else 0
    keys = _of_plain(list(dict.keys(value))) if isinstance(value, dict) else 0
    return len(value), keys, _of_plain(_items(value)) if len(value) > ITEMS_MAX else 0


def _items(value: Any) -> list[Any]:
    return list(dict.values(value) if isinstance(value, dict) else value)


def which_items(value: Any) -> int:
    """Which objects a long collection holds: only some of them are looked at one by one. To be compared
    where the collection lasts: one that is made anew has others."""
    kind = type(value)
    if not issubclass(kind, list | tuple | dict | deque) or not ITEMS_MAX < len(value) <= _ITEMS:
        return 0
    return hash(tuple(map(id, _items(value))))


def _of_plain(items: list[Any]) -> int:
    return hash(tuple(items)) if are_plain(items) else 0


def are_plain(items: Iterable[Any]) -> bool:
    """Whether all of these are numbers, texts and the like."""
    return {*map(type, items)} <= {*PLAIN}


def _of_called(value: Any) -> Hashable:
    """Which function or class this is; of a function of the script also how many it wraps; of one that is
    cached and draws random numbers, how often it was called."""
    kind = type(value)
    if kind is _CACHED:
        code = getattr(value.__wrapped__, "__code__", None)
        return (
            (_named(value), value.cache_info().misses)
            if _DRAWING & {*getattr(code, "co_names", ())}
            else None
        )
    if kind is FunctionType:
        return f"{_named(value)}:{value.__code__.co_firstlineno}", _depth(value)
    if kind is MethodType:
        return getattr(value.__func__, "__qualname__", "")
    return _named(value) if kind is BuiltinFunctionType or issubclass(kind, type) else None


def _named(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _depth(function: Any) -> int:
    """How many functions are wrapped in one another here."""
    seen: set[int] = set()
    pending = [function]
    while pending and len(seen) < ITEMS_MAX:
        each = pending.pop()
        if type(each) is MethodType:
            each = each.__func__
        if type(each) is FunctionType and id(each) not in seen:
            seen.add(id(each))
            pending += [cell.cell_contents for cell in each.__closure__ or () if _is_full(cell)]
    return len(seen)


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # nothing was assigned yet
        return False


def _of_iterator(value: Any) -> Hashable:
    """How far an iterator of Python's own has come, if it says so."""
    kind = type(value)
    if kind is itertools.count:
        return repr(value)
    if kind in _DEALING:
        given = gc.get_referents(value)[-1]
        return hash(tuple(map(id, given))) if type(given) is tuple else 0
    if kind.__module__ not in ("builtins", "itertools", "collections") or not hasattr(kind, "__next__"):
        return None
    return operator.length_hint(value, -1) if hasattr(kind, "__length_hint__") else None


def _of_tensor(whole: torch.Tensor, kept: Container[int]) -> Hashable:
    tensor = loose_part(whole, kept)
    if tensor is None:
        return None
    readable = tensor.device.type == "cpu" and tensor.is_contiguous() and _has_memory(tensor)
    return digest.writes(tensor), tuple(ChosenValues([tensor.detach()]).take().host) if readable else ()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the memory that a tensor is a view of is all there: a storage may be resized to nothing."""
    reach = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= reach


def _of_memory(value: Any) -> Hashable:
    """Of what holds plain memory: arrays of Python's and numpy's, and what processes share."""
    kind = type(value)
    if kind in (array.array, bytearray):
        return len(value), zlib.crc32(value)
    if kind is contextvars.ContextVar:
        held = value.get(None)
        return bits_of(held, ()) if type(held) in PLAIN else None
    shared = getattr(value, "_obj", None) if kind.__module__ == "multiprocessing.sharedctypes" else value
    if isinstance(shared, ctypes._SimpleCData | ctypes.Array | ctypes.Structure):
        return zlib.crc32(memoryview(shared).cast("B"))
    return _of_array(value)


def _of_array(value: Any) -> Hashable:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(value), numpy.ndarray) or value.dtype.hasobject:
        return None
    if value.flags.c_contiguous and value.nbytes <= _WHOLE_BYTES:
        return value.shape, zlib.crc32(value)
    flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
    return value.shape, flat[:: max(value.size // VALUES, 1)].tobytes()


def _of_telling(value: Any) -> Hashable:
    """What a value says of itself, of a kind that says all: numbers of numpy, and of classes that are made
    of Python's."""
    kind = type(value)
    if issubclass(kind, str | bytes):
        return kind.__qualname__, hash(str.__str__(value) if issubclass(kind, str) else bytes(value))
    if issubclass(kind, Enum):  # its text may be made by code of its own
        return kind.__qualname__, value._name_, value._value_ if type(value._value_) in PLAIN else None
    numpy: Any = sys.modules.get("numpy")
    if issubclass(kind, (int, float, complex, *_TELLING)) or (numpy and issubclass(kind, numpy.generic)):
        return kind.__qualname__, repr(value)
    if kind.__module__.startswith("numpy.random") and kind.__name__ == "SeedSequence":
        return kind.__qualname__, value.n_children_spawned
    return None


def of_torch() -> dict[str, Hashable]:
    """What a script may set in torch for all of its process."""
    return {
        "torch's default dtype": torch.get_default_dtype(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's number of threads": torch.get_num_threads(),
    }


def switches() -> dict[str, Hashable]:
    """What a script may set for all of its process: in torch, and in the environment."""
    return {
        **of_torch(),
        **{f"os.environ[{name!r}]": hash(value) for name, value in os.environ.items() if not _is_place(name)},
    }


def _is_place(name: str) -> bool:
    """Whether this variable tells a rank of its place."""
    return name.startswith(("HOLDFAST_", "MASTER_", "TORCHELASTIC_")) or name.endswith(("RANK", "WORLD_SIZE"))


def changed(before: dict[str, Hashable], after: dict[str, Hashable]) -> list[str]:
    """What has other bits now, the first name of all within one attribute of a variable.

    What came or went is seen by its container."""
    names = (name for name, bits in after.items() if name in before and before[name] != bits)
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(root_of(name), name)
    return list(found.values())


def root_of(name: str) -> str:
    """The variable that a name begins with, and the attribute of it: a trainer's `self` holds everything."""
    return _BEGINNING.match(name)[0]  # type: ignore[index]  # it matches every name


def variable_of(name: str) -> str:
    """The variable that a name begins with."""
    return re.split(r"[.\[]", name, maxsplit=1)[0]


def clocks() -> list[float]:
    """What the clocks show now."""
    return [clock() for clock in _CLOCKS]


def is_time(bits: Hashable, since: list[float]) -> bool:
    """Whether this is a number that a clock has given since then."""
    if not isinstance(bits, tuple) or bits[0] not in (int, float):
        return False
    number = float(bits[1])
    values = number, number / 1e9
    return any(then <= each <= clock() for then, clock in zip(since, _CLOCKS, strict=True) for each in values)


class FirstLooks:
    """What the first step sets once, by looks before it and after the first three steps.

    Before the first step, only numbers and files are compared (a loss at the start), and which functions and
    objects a script has chosen: what a step fills is mostly a cache. What it makes there (a tensor in an
    attribute) counts if it then stays the same."""

    def __init__(self) -> None:
        self._before: dict[str, Hashable] | None = None
        self._count = 0
        self._early: list[str] = []
        self._made: dict[str, Hashable] = {}

    def begin(self, look: dict[str, Hashable]) -> None:
        """The first step begins."""
        self._before, self._count, self._early, self._made = look, 0, [], {}

    def after(self, look: dict[str, Hashable]) -> tuple[list[str], list[str]]:
        """A step has ended. Returns what has changed in the first step, with the second one; and what the
        first one has made, with the third one."""
        before, self._count = self._before, self._count + 1
        if before is None or self._count > _LAST:
            return [], []
        if self._count == 1:
            early = {name: bits for name, bits in before.items() if _counts_early(bits, look.get(name))}
            self._early = changed(early, look)
            within = (name for name in look if "." in name or "[" in name)  # of something that was there
            new = {name: look[name] for name in within if name not in before}
            self._made = {name: bits for name, bits in new.items() if _is_number(bits) or _is_tensor(bits)}
        same = {name: root_of(name) for name, bits in self._made.items() if look.get(name) == bits}
        once = list({root: name for name, root in reversed(same.items())}.values())[::-1]
        return (self._early if self._count == 2 else []), (once if self._count == _LAST else [])


def _counts_early(bits: Hashable, now: Hashable) -> bool:
    if isinstance(now, Which):  # where there was none, it is made when it is needed first
        return isinstance(bits, Which)
    return _is_number(bits) or (isinstance(bits, tuple) and type(bits[0]) is str)


def _is_number(bits: Hashable) -> bool:
    """Whether these are the bits of a number, of None, or of a file that is read."""
    return isinstance(bits, tuple) and bits[0] in (int, float, bool, type(None), streams.READ)


def _is_tensor(bits: Hashable) -> bool:
    return isinstance(bits, tuple) and type(bits[0]) is int and type(bits[1]) is tuple and bool(bits[1])
