"""Share the work of a `dcp.save`: what several ranks hold alike is written once, in equal shares.

torch's planner gives each replicated tensor to one rank as a whole, so that a large embedding keeps one rank
writing while the others wait. Here the ranks that hold the same tensors share their bytes. A share is a run
of rows, so that it is a tensor with a place in a larger one, like any shard. Pure: plans in, portions out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.planner import WriteItemType

from holdfast.ipc.layout import SMALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.checkpoint.metadata import MetadataIndex
    from torch.distributed.checkpoint.planner import SavePlan, WriteItem

SHARE_BYTES_MIN = 1 << 20
"""Fewer bytes are not worth another writer."""

Key = tuple[str, tuple[int, ...]]
"""The name of a tensor and its offset."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows `start` to `stop` of a write item, counted along `dim`; a small item is one portion."""

    item: WriteItem
    dim: int
    start: int
    stop: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of this portion."""
        whole = chunk_sizes(self.item)
        return (*whole[: self.dim], self.stop - self.start, *whole[self.dim + 1 :]) if whole else ()

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        assert self.item.tensor_data is not None
        return math.prod(self.sizes) * int(self.item.tensor_data.properties.dtype.itemsize)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where it begins in the global tensor."""
        assert self.item.tensor_data is not None
        at = tuple(self.item.tensor_data.chunk.offsets)
        return (*at[: self.dim], at[self.dim] + self.start, *at[self.dim + 1 :]) if at else ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one rank writes. Planners that cache plans return it again for later saves."""

    portions: tuple[Portion, ...]


def held(plan: SavePlan) -> tuple[Key, ...]:
    """What a rank holds, before the planner removes from its plan what others write."""
    return tuple(key_of(item.index) for item in plan.items)


def assign(plans: Sequence[SavePlan]) -> list[Assignment]:
    """Each rank's portions. `storage_data` of each plan is what `held` returned for it."""
    holders: dict[Key, list[int]] = {}
    for rank, plan in enumerate(plans):
        for key in plan.storage_data:
            holders.setdefault(key, []).append(rank)
    portions: list[list[Portion]] = [[] for _ in plans]
    loads = [0] * len(plans)
    shared: dict[tuple[int, ...], list[WriteItem]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            owners = tuple(holders.get(key_of(item.index), (rank,)))
            if item.type == WriteItemType.BYTE_IO or len(owners) < 2:
                portions[rank].append(whole(item))
                loads[rank] += item_bytes(item)
            else:
                shared.setdefault(owners, []).append(item)
    for owners in sorted(shared, key=lambda ranks: (len(ranks), ranks)):
        _spread(shared[owners], owners, loads, portions)
    return [Assignment(tuple(own)) for own in portions]


def whole(item: WriteItem) -> Portion:
    """A portion with all of an item."""
    sizes = chunk_sizes(item)
    dim = _row_dim(sizes)
    return Portion(item, dim, 0, sizes[dim] if sizes else 1)


def key_of(index: MetadataIndex) -> Key:
    """What identifies an item on several ranks."""
    return index.fqn, tuple(index.offset) if index.offset is not None else (-1,)


def chunk_sizes(item: WriteItem) -> tuple[int, ...]:
    """The shape of what an item writes; () if it is not a tensor."""
    return tuple(item.tensor_data.chunk.sizes) if item.tensor_data is not None else ()


def item_bytes(item: WriteItem) -> int:
    """Bytes of a tensor's item; 0 if it is not a tensor."""
    if item.tensor_data is None:
        return 0
    size: Any = item.tensor_data.properties.dtype.itemsize
    return math.prod(chunk_sizes(item)) * int(size)


def _spread(
    items: list[WriteItem], owners: tuple[int, ...], loads: list[int], portions: list[list[Portion]]
) -> None:
    """Fill the owners one after the other, the least loaded first, up to one level."""
    total = sum(item_bytes(item) for item in items)
    writers = sorted(owners, key=lambda rank: (loads[rank], rank))
    writers = writers[: max(1, -(-total // SHARE_BYTES_MIN))]
    level = _level([loads[rank] for rank in writers], total)
    at, place = 0, 0  # the next item, and its next row
    for number, rank in enumerate(writers):
        last = number == len(writers) - 1
        while at < len(items) and (last or loads[rank] < level):
            item = items[at]
            full = whole(item)
            stop = full.stop if last else min(full.stop, place + _rows(item, full, level - loads[rank]))
            if stop == place and full.stop > 0:  # no further row fits: it goes to the next writer
                break
            portions[rank].append(Portion(item, full.dim, place, stop))
            loads[rank] += item_bytes(item) * (stop - place) // max(full.stop, 1)
            at, place = (at + 1, 0) if stop == full.stop else (at, stop)


def _rows(item: WriteItem, full: Portion, room: int) -> int:
    """The number of rows of an item that fit this room, to the nearest row. Small items are not cut."""
    nbytes = item_bytes(item)
    if nbytes <= SMALL_BYTES or full.stop < 2:
        return full.stop if nbytes <= SMALL_BYTES or 2 * room >= nbytes else 0
    return round(room * full.stop / nbytes)


def _level(loads: list[int], total: int) -> int:
    """The level that the (ascending) loads reach when `total` bytes are poured over them."""
    filled = 0
    for count, load in enumerate(loads, start=1):
        filled += load
        level = -(-(filled + total) // count)
        if count == len(loads) or level <= loads[count]:
            return level
    return 0


def _row_dim(sizes: tuple[int, ...]) -> int:
    """The first dimension longer than 1: rows along it are consecutive in memory."""
    return next((dim for dim, size in enumerate(sizes) if size != 1), 0)
