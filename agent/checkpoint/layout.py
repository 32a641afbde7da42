"""What a slot holds: tensors as whole little-endian buffers, and a JSON header that names them.

    {"tensors": [{"name", "dtype", "shape", "offset", "nbytes"}, ...], "state": <typed JSON>}

Offsets count from the start of the slot's data. `dtype` is torch's name without its prefix ("float32").
Standard library only: the ranks import it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agent.checkpoint.arena import HEADER_ALIGN_BYTES
from agent.checkpoint.shm import PAGE_BYTES, align

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SMALL_BYTES = 64 * 1024
"""Tensors up to this size are packed together; larger ones start on a page of their own."""

_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_KEYS = {"name", "dtype", "shape", "offset", "nbytes"}


class LayoutError(ValueError):
    """A header that does not describe a slot. The message names the tensor and what is wrong."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor in a slot. `offset` and `nbytes` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def place(tensors: Iterable[tuple[str, str, Sequence[int], int]]) -> tuple[tuple[Tensor, ...], int]:
    """Offsets for (name, dtype, shape, nbytes) in this order, and the bytes they take together.

    Each starts on a multiple of 64 bytes, the large ones on a page."""
    placed, end = [], 0
    for name, dtype, shape, nbytes in tensors:
        offset = align(end, PAGE_BYTES if nbytes > SMALL_BYTES else HEADER_ALIGN_BYTES)
        placed.append(Tensor(name, dtype, tuple(shape), offset, nbytes))
        end = offset + nbytes
    return tuple(placed), end


def room(data_bytes: int, header_bytes: int) -> int:
    """Bytes of slot that data and header need, with room for the header to grow (numbers get longer)."""
    return align(data_bytes, HEADER_ALIGN_BYTES) + header_bytes + max(header_bytes // 4, 64 * 1024)


def encode(tensors: Iterable[Tensor], state: Any) -> bytes:
    """The header's bytes; the same content always gives the same bytes."""
    header = {"tensors": [asdict(tensor) for tensor in tensors], "state": state}
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def decode(header: bytes, data_bytes: int) -> tuple[tuple[Tensor, ...], Any]:
    """The tensors and the typed state of a header. Raises LayoutError when it does not describe a slot
    of `data_bytes`."""
    try:
        content = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise LayoutError(f"the slot's header is no JSON: {error}") from error
    if (
        not isinstance(content, dict)
        or "state" not in content
        or not isinstance(content.get("tensors"), list)
    ):
        raise LayoutError("the slot's header has no list of tensors and no state")
    return check(content["tensors"], data_bytes), content["state"]


def check(entries: list[Any], data_bytes: int) -> tuple[Tensor, ...]:
    """Parsed JSON as tensors that lie within `data_bytes`, in order, without overlap. Raises LayoutError."""
    tensors, end = [], 0
    for index, entry in enumerate(entries):
        tensor = _tensor(index, entry)
        if tensor.offset < end or tensor.offset % HEADER_ALIGN_BYTES:
            raise LayoutError(f"tensor {tensor.name!r} starts at {tensor.offset}: overlapping or unaligned")
        end = tensor.offset + tensor.nbytes
        if end > data_bytes:
            raise LayoutError(f"tensor {tensor.name!r} ends at {end}, beyond the slot's {data_bytes} bytes")
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(index: int, entry: Any) -> Tensor:
    if not isinstance(entry, dict) or not entry.keys() >= _KEYS or not isinstance(entry["name"], str):
        raise LayoutError(f"tensor {index} is not described by {sorted(_KEYS)}")
    name, dtype, shape, nbytes = entry["name"], entry["dtype"], entry["shape"], entry["nbytes"]
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise LayoutError(f"tensor {name!r} has no usable dtype: {dtype!r}")
    if not isinstance(shape, list) or not all(_is_count(size) for size in shape):
        raise LayoutError(f"tensor {name!r} has no usable shape: {shape!r}")
    if not _is_count(nbytes) or not _is_count(entry["offset"]):
        raise LayoutError(f"tensor {name!r} has no usable offset and size")
    elements = math.prod(shape)
    if (elements == 0) != (nbytes == 0) or (elements and nbytes % elements):
        raise LayoutError(f"tensor {name!r} of shape {shape} cannot have {nbytes} bytes")
    return Tensor(name, dtype, tuple(shape), entry["offset"], nbytes)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
