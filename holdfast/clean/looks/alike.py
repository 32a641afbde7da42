"""Make a number of a value that is the same in each process in which a script has made the same.

What differs between processes by itself does not count: clocks, numbers of processes and ports, ranks, names
of runs, addresses of objects. Of an object that says nothing more, its class counts."""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import time
import zlib
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from holdfast import pids
from holdfast.clean.looks.bits import are_plain, bits_of
from holdfast.clean.looks.reach import ITEMS_MAX, PLAIN

ITEM = re.compile(r"\[\d")
"""In the name of an item of a list."""
_ITEMS_MAX = 4096
"""Of longer lists of plain items, as many of them count."""
_OWN_CLOCK_S = 3600
"""How old a process is at most where that cannot be read."""
_TICK_S = 0.02
_SECONDS = (1.5e9, 2.5e9)
"""Times of a clock, since 1970."""
_PLACES = re.compile(r"rank|world|pid|port|host|time", re.IGNORECASE)
"""Names of what differs between processes."""
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_CHOICES = (Enum, torch.dtype)
_DIGITS_MAX = 5
"""More digits in a text are a date, or the name of a run."""


def digest_of(name: str, value: Any) -> int | None:
    """A number below 2^32 for a value that has the same one in each process; None: it does not count."""
    kind = type(value)
    if _PLACES.search(name) or (kind in (int, float) and _is_time(value)):
        return None
    if kind is str:
        counts = os.sep not in value and sum(each.isdigit() for each in value) <= _DIGITS_MAX
        return zlib.crc32(value.encode(errors="replace")) if counts else None
    if kind in PLAIN:
        return zlib.crc32(repr(value).encode())
    if issubclass(kind, list | tuple | dict | set | frozenset):
        return _of_items(value)
    bits: Any = bits_of(value, ()) if issubclass(kind, torch.Tensor) or _is_numpys(kind) else None
    if bits is None:
        return None if ITEM.search(name) else zlib.crc32(_which(value).encode())
    return zlib.crc32(repr(bits[1] if issubclass(kind, torch.Tensor) else bits).encode())


def says_all(value: Any) -> bool:
    """Whether the text of a value says all of it, in each process."""
    return type(value) in PLAIN or (type(value) in (list, tuple) and are_plain(value))


def _which(value: Any) -> str:
    """Which function, class or choice this is; of another object, of which class it is. No code of the
    object's own is run, but for the text of a choice."""
    kind = type(value)
    if issubclass(kind, _CHOICES):
        return str(value)
    if kind is MethodType:  # also of what is no function: scipy makes methods of numpy's vectorize
        return _which(value.__func__)
    named: Any = value if kind in _FUNCTIONS or issubclass(kind, type) else kind
    return f"{named.__module__}.{named.__qualname__}"


def _of_items(value: Any) -> int:
    """How many there are; of many plain ones (the lines of a file), which ones and in which order, because
    these are not looked at one by one."""
    size = len(value)
    if size <= ITEMS_MAX or type(value) not in (list, tuple, dict):
        return size
    items = value.values() if type(value) is dict else value
    chosen = list(itertools.islice(items, 0, None, -(-size // _ITEMS_MAX)))
    if not are_plain(chosen):
        return size
    texts = [os.path.basename(each) if type(each) is str else repr(each) for each in chosen]
    return zlib.crc32(repr((size, texts)).encode(errors="replace"))


def _is_numpys(kind: type[Any]) -> bool:
    return kind.__module__.partition(".")[0] == "numpy"


def _is_time(value: float) -> bool:
    if any(_SECONDS[0] < value / unit < _SECONDS[1] for unit in (1, 1e3, 1e6, 1e9)):
        return True
    own = (clock() - value for clock in (time.monotonic, time.perf_counter))
    return (
        not math.isinf(value) and value % 1 != 0 and any(0 <= since <= _age_s(os.getpid()) for since in own)
    )


def _age_s(pid: int) -> float:
    """How long this process has been running. Its own clocks begin with the machine: on one that was started
    a minute ago, a number from before the process is a setting (a rate of 0.1)."""
    born_s = _born_s(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - born_s + _TICK_S if born_s else _OWN_CLOCK_S


@functools.cache
def _born_s(pid: int) -> float:
    """In seconds since the machine was started, as CLOCK_BOOTTIME counts; 0: not known."""
    return pids.born(pid) / os.sysconf("SC_CLK_TCK")
