"""Tell that a process has begun with other values than those that it joins.

What stands above the elastic function runs again in a process that takes a dead rank's place, long after the
others ran it. What it reads then may be another thing: settings that somebody has edited, a cache or a
checkpoint of the script's own that was not there yet. All replicas still hold equal state then, so nothing
else would show it.

Theory of operation. Before a process waits for its first generation, it notes what the variables of the
script are. In the first generation the ranks find out which of them are the same on all: only those count.
Clocks, numbers of processes and what is drawn without a seed differ from the beginning. A process that joins
later is told what the others have in common, and names what differs."""

from __future__ import annotations

import logging
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.clean.forgotten import shown
from holdfast.clean.looks.bits import bits_of
from holdfast.clean.looks.reach import PLAIN
from holdfast.groups import transfer
from holdfast.groups.groups import carrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.rank_state import RankState

_VALUES_MAX = 2000
_ABSENT = -1
_SECONDS = (1.5e9, 2.5e9)
"""Times of a clock, since 1970."""
_PLACES = re.compile(r"rank|world|pid|port|host|time", re.IGNORECASE)
"""Names of what differs between processes."""
_DIGITS_MAX = 5
"""More digits in a text are a date, or the name of a run."""
_OTHER = (
    "this process has begun later than those that it joins, and what the script makes before its training "
    "is not what they have: %s%s. If the steps depend on it, the training comes out differently. Something "
    "that the script reads has changed since: settings, a cache, a checkpoint of its own. Leave such files "
    "as they are while a job runs; what training itself has come to, Holdfast restores"
)
_UNSEEN = "what the script has made before its training cannot be seen, nor compared with other ranks: %s: %s"
log = logging.getLogger("holdfast.sdk")


class Beginnings:
    """What the script's variables are where this process begins. `values()`: they, with names."""

    def __init__(self, state: RankState, values: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        self._state, self._values = state, values
        self._own: dict[int, int] | None = None  # digests, by those of names
        self._names: dict[int, str] = {}
        self._common: dict[int, int] | None = None  # what all ranks had in common at the beginning
        self._giver = -1  # the rank that is to tell it to those that have joined; -1: none has

    def note(self) -> None:
        """Note the values, if that was not done yet."""
        if self._own is not None:
            return
        self._own = {}
        try:
            for name, value in self._values():
                number = _digest(name, value) if len(self._own) < _VALUES_MAX else None
                if number is not None:
                    self._own.setdefault(key := zlib.crc32(name.encode()), number)
                    self._names[key] = name
        except Exception as error:  # an object of the script or of a package has run code of its own
            log.warning(_UNSEEN, type(error).__name__, error)

    def numbers(self) -> list[int]:
        """What the others have to know: whether this process knows what they have in common, and else how
        many values it has, and which."""
        self.note()
        keys = list(self._own or {})
        return [int(self._common is not None), len(keys), zlib.crc32(repr(keys).encode())]

    def meet(self, rows: Sequence[Sequence[int]]) -> None:
        """A generation begins: find out what is common, if no rank knows. Every rank calls it with the
        numbers of all."""
        knowing, self._giver = [rank for rank, row in enumerate(rows) if row[0]], -1
        if not knowing:
            self._common = self._agree(alike=all(row == rows[0] for row in rows))
        elif len(knowing) < len(rows):
            self._giver = knowing[0]

    def compare(self) -> None:
        """Give those that have joined what is common, and name what differs. All ranks call it after their
        first step: a recovery does not wait for it."""
        if self._giver < 0:
            return
        flat = [number for pair in (self._common or {}).items() for number in pair]
        told = transfer.tell(flat, self._giver, self._state.rank, self._device)
        self._giver = -1
        if self._common is None:
            self._common = dict(zip(told[::2], told[1::2], strict=True))
            self._tell()

    @property
    def _device(self) -> torch.device:
        return carrier(self._state.backend, self._state.device)

    def _agree(self, *, alike: bool) -> dict[int, int]:
        """The values that are the same on all ranks. `alike`: they have the same names."""
        own = self._own or {}
        if self._state.world_size == 1:
            return own
        keys = list(own) if alike else transfer.tell(list(own), 0, self._state.rank, self._device)
        if not keys:
            return {}
        least = torch.tensor([own.get(key, _ABSENT) for key in keys], dtype=torch.int64, device=self._device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        rows = zip(keys, least.tolist(), most.tolist(), strict=True)
        return {key: low for key, low, high in rows if low == high}

    def _tell(self) -> None:
        own, common = self._own or {}, self._common or {}
        names = [self._names[key] for key, number in own.items() if common.get(key, number) != number]
        if names:
            log.warning(_OTHER, *shown(names))


def _digest(name: str, value: Any) -> int | None:
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
        return len(value)
    bits: Any = bits_of(value, ()) if issubclass(kind, torch.Tensor) or _is_numpys(kind) else None
    if bits is None:
        return None
    return zlib.crc32(repr(bits[1] if issubclass(kind, torch.Tensor) else bits).encode())


def _is_numpys(kind: type[Any]) -> bool:
    return kind.__module__.partition(".")[0] == "numpy"


def _is_time(value: float) -> bool:
    return any(_SECONDS[0] < value / unit < _SECONDS[1] for unit in (1, 1e3, 1e6, 1e9))
