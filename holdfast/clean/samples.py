"""Tell values from what they become: of many tensors some words spread over the memory of each, and a few
bytes of whatever else a script keeps.

Host memory is read without torch: one operation for each tensor would take longer than all else that a step
is watched with. What is on another device is compared together, so that the host waits for it once."""

from __future__ import annotations

import array
import contextvars
import ctypes
import io
import itertools
import operator
import os
import re
import sys
import zlib
from collections import deque
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from holdfast.clean import restarting
from holdfast.clean.reach import ITEMS_MAX, PLAIN
from holdfast.state import digest, modes, randomness, shards

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Hashable, Iterable

VALUES = 32
"""Values of each tensor that are compared."""
_WORDS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q", 16: "Q"}
"""By the size of a value in bytes, as what its memory is read; a larger value is read in parts."""

_WHOLE_BYTES, _ITEMS = 1 << 20, 1 << 14
"""Up to these sizes, arrays, and lists of plain items, are compared as a whole."""
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_BEGINNING = re.compile(r"[^.\[]*(\.[^.\[]+)?")
_READ = "read"
_LAST = 3
"""Steps after which what the first one has made is told."""
_ITERATORS: tuple[type[Any], ...] = (type(iter([])), type(iter(())), type(iter(range(0))), itertools.count)
"""Iterators that know how many items are left, or where they are."""
COUNTING: dict[type[Any], tuple[str, ...]] = {
    torch.optim.lr_scheduler.LRScheduler: ("last_epoch", "num_bad_epochs"),
    torch.amp.GradScaler: ("_scale", "_growth_tracker"),
}
"""Objects of torch that a script has to track, and what in them tells that they have changed."""

Numbered = tuple[int, torch.Tensor]
"""A tensor that is contiguous and not empty, and its number."""


class SeenValues(NamedTuple):
    """The chosen values as they were: of each tensor on the host, and of all on each device and dtype."""

    host: list[bytes]
    away: list[torch.Tensor]


class ChosenValues:
    """The chosen values of these tensors, in the memory that they have now. Those that are empty or not
    contiguous are left out."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        host: list[Numbered] = []
        away: list[Numbered] = []
        for index, tensor in enumerate(tensors):
            if tensor.numel() and tensor.is_contiguous():
                readable = tensor.device.type == "cpu" and digest.shared(tensor)
                (host if readable else away).append((index, tensor))
        self._host, self._away = HostValues(host), DeviceValues(away)

    def take(self) -> SeenValues:
        """The values now."""
        return SeenValues(self._host.take(), self._away.take())

    def changed(self, seen: SeenValues, gone: Collection[int] = ()) -> set[int]:
        """The tensors whose values have other bits now. `gone`: those whose memory is another one, or none
        any more: it is not read on the host."""
        return self._host.changed(seen.host, gone) | self._away.changed(seen.away)


class HostValues:
    """Those of tensors on the host."""

    def __init__(self, tensors: Iterable[Numbered]) -> None:
        self._indices: list[int] = []
        self._views: list[memoryview] = []
        for index, tensor in tensors:
            words = digest.memory(tensor).cast(_WORDS[tensor.element_size()])
            self._indices.append(index)
            self._views.append(words[:: max(len(words) // VALUES, 1)][:VALUES])

    def take(self) -> list[bytes]:
        """The values of each tensor now."""
        return list(map(memoryview.tobytes, self._views))

    def changed(self, seen: list[bytes], gone: Collection[int] = ()) -> set[int]:
        """The tensors whose values have other bits now. The memory of those that are `gone` is not read."""
        if gone:
            rows = zip(self._indices, self._views, seen, strict=True)
            now = [then if index in gone else view.tobytes() for index, view, then in rows]
        else:
            now = self.take()
        if now == seen:
            return set()
        places = zip(self._indices, now, seen, strict=True)
        return {index for index, value, then in places if value != then}


class DeviceValues:
    """Those of tensors on other devices."""

    def __init__(self, tensors: Iterable[Numbered]) -> None:
        self._some: dict[tuple[torch.dtype, torch.device], list[Numbered]] = {}
        for index, tensor in tensors:
            some = tensor.detach().view(-1)[:: max(tensor.numel() // VALUES, 1)][:VALUES]
            self._some.setdefault((tensor.dtype, tensor.device), []).append((index, some))

    def take(self) -> list[torch.Tensor]:
        """The values of all tensors now, for each dtype and device."""
        return [torch.cat([values for _, values in some]) for some in self._some.values()]

    def changed(self, seen: list[torch.Tensor]) -> set[int]:
        """The tensors whose values have other bits now. They are looked at one by one only if there are
        any."""
        found: set[int] = set()
        for some, now, then in zip(self._some.values(), self.take(), seen, strict=True):
            if not digest.same_bits(now, then):
                parts = torch.split(then, [len(values) for _, values in some])
                rows = zip(some, parts, strict=True)
                found |= {index for (index, values), part in rows if not digest.same_bits(values, part)}
        return found


def bits_of(value: Any, kept: Container[int]) -> Hashable:
    """A few bytes that tell a value from what it becomes; None: it is not looked at. `kept`: addresses of
    memory that is tracked."""
    kind = type(value)
    if kind in PLAIN:
        return kind, hash(value) if kind in (str, bytes) else repr(value)
    if issubclass(kind, torch.Tensor):
        return _of_tensor(value, kept)
    if issubclass(kind, list | tuple | dict | set | deque):
        return _of_items(value)
    if randomness.is_generator(value):
        return randomness.bits_of(value)
    return _of_others(value)


def _of_others(value: Any) -> Hashable:
    kind = type(value)
    if counting := _counting(value):
        return tuple(repr(getattr(value, name, None)) for name in counting)
    if kind in _ITERATORS:
        return _of_iterator(value)
    if kind is FunctionType:
        return _depth(value)
    return _of_file(value) if issubclass(kind, io.IOBase) else _of_memory(value)


def _counting(value: Any) -> tuple[str, ...]:
    """The attributes of an object of torch that tell that it has changed; (): it is not looked at."""
    if restarting.is_restarting(value):
        return ("_num_yielded",)
    return next((names for base, names in COUNTING.items() if issubclass(type(value), base)), ())


def _of_items(value: Any) -> Hashable:
    """How many there are; and of numbers and texts, what those are that are not looked at one by one."""
    rest: list[Any] = []
    if type(value) in (list, tuple, deque) and len(value) <= _ITEMS:
        rest = list(itertools.islice(value, ITEMS_MAX, None))
    return len(value), zlib.crc32(repr(rest).encode()) if {*map(type, rest)} <= {*PLAIN} else 0


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
    return repr(value) if type(value) is itertools.count else operator.length_hint(value)


def own_part(tensor: torch.Tensor) -> torch.Tensor | None:
    """What of a tensor can be read here: all of it, or this rank's part of a DTensor. None: it is sparse or
    nested, or of a class that says itself how it is read."""
    part = shards.local(tensor)
    plain = type(part) in _TENSORS and part.layout is torch.strided and not part.is_nested
    return part if plain else None


def _of_tensor(whole: torch.Tensor, kept: Container[int]) -> Hashable:
    tensor = own_part(whole)
    if tensor is None or modes.storage(tensor) in kept:
        return None
    readable = tensor.device.type == "cpu" and tensor.is_contiguous() and _has_memory(tensor)
    return digest.writes(tensor), tuple(ChosenValues([tensor.detach()]).take().host) if readable else ()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the memory that a tensor is a view of is all there: a storage may be resized to nothing."""
    reach = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= reach


def _of_file(file: Any) -> Hashable:
    """How far a file is read that nothing is written to. A text that is iterated over does not say so; then
    how much of it has been fetched."""
    try:
        if not file.readable() or file.writable():
            return None
        fetched = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):  # a pipe, or closed
        return None
    try:
        return _READ, file.tell()
    except OSError:
        return _READ, -1 - fetched


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


def switches() -> dict[str, Hashable]:
    """What a script may set for all of its process: in torch, and in the environment."""
    return {
        "torch's default dtype": torch.get_default_dtype(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's number of threads": torch.get_num_threads(),
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


class FirstLooks:
    """What the first step sets once, by looks before it and after the first three steps.

    Before the first step, only numbers and files are compared (a loss at the start): what a step fills is
    mostly a cache. What it makes there (a tensor in an attribute) counts if it then stays the same."""

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
            self._early = changed({name: bits for name, bits in before.items() if _is_number(bits)}, look)
            within = (name for name in look if "." in name or "[" in name)  # of something that was there
            new = {name: look[name] for name in within if name not in before}
            self._made = {name: bits for name, bits in new.items() if _is_number(bits) or _is_tensor(bits)}
        same = {name: root_of(name) for name, bits in self._made.items() if look.get(name) == bits}
        once = list({root: name for name, root in reversed(same.items())}.values())[::-1]
        return (self._early if self._count == 2 else []), (once if self._count == _LAST else [])


def _is_number(bits: Hashable) -> bool:
    """Whether these are the bits of a number, of None, or of a file that is read."""
    return isinstance(bits, tuple) and bits[0] in (int, float, bool, type(None), _READ)


def _is_tensor(bits: Hashable) -> bool:
    return isinstance(bits, tuple) and type(bits[0]) is int and type(bits[1]) is tuple and bool(bits[1])
