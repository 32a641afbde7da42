"""Tell values from what they become: of many tensors some words spread over the memory of each, and a few
bytes of whatever else a script keeps.

Host memory is read without torch: one operation for each tensor would take longer than all else that a step
is watched with. What is on another device is compared together, so that the host waits for it once."""

from __future__ import annotations

import itertools
import operator
import sys
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from holdfast.clean import restarting
from holdfast.clean.reach import ITEMS_MAX, PLAIN
from holdfast.state import digest, modes, randomness

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Hashable, Iterable

VALUES = 32
"""Values of each tensor that are compared."""
_WORDS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q", 16: "Q"}
"""By the size of a value in bytes, as what its memory is read; a larger value is read in parts."""

_WHOLE_BYTES, _ITEMS = 1 << 20, 1 << 14
"""Up to these sizes, arrays, and lists of plain items, are compared as a whole."""
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
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
    if issubclass(kind, list | tuple | dict | set | deque | bytearray):
        return _of_items(value)
    if randomness.is_generator(value):
        return randomness.bits_of(value)
    if counting := _counting(value):
        return tuple(repr(getattr(value, name, None)) for name in counting)
    return _of_iterator(value) if kind in _ITERATORS else _of_array(value)


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


def _of_iterator(value: Any) -> Hashable:
    return repr(value) if type(value) is itertools.count else operator.length_hint(value)


def _of_tensor(tensor: torch.Tensor, kept: Container[int]) -> Hashable:
    if type(tensor) not in _TENSORS or tensor.layout is not torch.strided or modes.storage(tensor) in kept:
        return None
    if tensor.is_nested:
        return None
    readable = tensor.device.type == "cpu" and tensor.is_contiguous() and _has_memory(tensor)
    return digest.writes(tensor), tuple(ChosenValues([tensor.detach()]).take().host) if readable else ()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the memory that a tensor is a view of is all there: a storage may be resized to nothing."""
    reach = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= reach


def _of_array(value: Any) -> Hashable:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject:
        return None
    if value.flags.c_contiguous and value.nbytes <= _WHOLE_BYTES:
        return value.shape, zlib.crc32(value)
    flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
    return value.shape, flat[:: max(value.size // VALUES, 1)].tobytes()
