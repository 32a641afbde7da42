"""Lay out a slot: tensors as whole little-endian buffers, and a JSON header that names them.

    {"tensors": [{"name", "dtype", "shape", "offset", "nbytes"}, ...], "state": <typed JSON>, "shard": <word>}

Offsets count from the start of the slot's data. `dtype` is torch's name without its prefix ("float32"). A
tensor that is a part of a larger one also has "global_shape" and "global_offset": where it lies in that.
"shard" is the id of this part of the job's state; absent: all of it (WHOLE_STATE). Standard library only: the
ranks import it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.ipc.shm import HEADER_ALIGN_BYTES, PAGE_BYTES, align

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SMALL_BYTES = 64 * 1024
"""Tensors up to this size are packed together; larger ones start on a page of their own."""
WHOLE_STATE = "all"
"""The shard id of replicated state: this slot holds all of it."""

_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = {"name", "dtype", "shape", "offset", "nbytes"}


class SlotLayoutError(ValueError):
    """A header that does not describe a slot. The message names the tensor and what is wrong."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor in a slot; `offset` and `nbytes` in bytes.

    `global_shape`, `global_offset`: the tensor that it is a part of, and where in that it begins (in
    elements, one number per dimension); None: it is whole."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    global_shape: tuple[int, ...] | None = None
    global_offset: tuple[int, ...] | None = None


def place(tensors: Iterable[tuple[str, str, Sequence[int], int]]) -> tuple[tuple[Tensor, ...], int]:
    """Offsets for (name, dtype, shape, nbytes) in this order, and the bytes they take together.

    Each tensor starts on a multiple of 64 bytes, a large one on a page."""
    placed, end = [], 0
    for name, dtype, shape, nbytes in tensors:
        offset = align(end, PAGE_BYTES if nbytes > SMALL_BYTES else HEADER_ALIGN_BYTES)
        placed.append(Tensor(name, dtype, tuple(shape), offset, nbytes))
        end = offset + nbytes
    return tuple(placed), end


def room(data_bytes: int, header_bytes: int) -> int:
    """Bytes of slot that data and header need, with room for the header to grow (numbers get longer)."""
    return align(data_bytes, HEADER_ALIGN_BYTES) + header_bytes + max(header_bytes // 4, 64 * 1024)


def share_range(data_bytes: int, share: int, shares: int) -> tuple[int, int]:
    """The bytes [start, end) of a slot's data that are share `share` of `shares`, when several ranks read a
    shard.

    Shares are consecutive ranges of whole pages. Together they are all bytes, each once."""
    if not 0 <= share < shares:
        raise SlotLayoutError(f"share {share} of {shares} does not exist")
    pages = -(-data_bytes // PAGE_BYTES)
    start, end = pages * share // shares * PAGE_BYTES, pages * (share + 1) // shares * PAGE_BYTES
    return min(start, data_bytes), min(end, data_bytes)


def encode(tensors: Iterable[Tensor], state: Any, shard: str = WHOLE_STATE) -> bytes:
    """The header's bytes; the same content always gives the same bytes."""
    header: dict[str, Any] = {"tensors": [entry(tensor) for tensor in tensors], "state": state}
    if shard != WHOLE_STATE:
        header["shard"] = shard
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def entry(tensor: Tensor) -> dict[str, Any]:
    """A tensor as the JSON object in a header."""
    fields: dict[str, Any] = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "offset": tensor.offset,
        "nbytes": tensor.nbytes,
    }
    if tensor.global_shape is not None:
        fields["global_shape"], fields["global_offset"] = tensor.global_shape, tensor.global_offset
    return fields


def decode(header: bytes, data_bytes: int) -> tuple[tuple[Tensor, ...], Any]:
    """The tensors and the typed state of a header.

    Raises SlotLayoutError if it does not describe a slot of `data_bytes`."""
    content = _parse(header)
    return check(content["tensors"], data_bytes), content["state"]


def shard(header: bytes) -> str:
    """The shard id in a slot's header. Raises SlotLayoutError."""
    return check_shard(_parse(header).get("shard", WHOLE_STATE))


def check_shard(shard_id: Any) -> str:
    """Return the argument if it is a shard id. Raises SlotLayoutError."""
    if not isinstance(shard_id, str) or not _SHARD.fullmatch(shard_id):
        raise SlotLayoutError(
            f"{shard_id!r:.80} is not a shard id: use letters, digits, '.', '_', '-', at most 64"
        )
    return shard_id


def check(entries: list[Any], data_bytes: int) -> tuple[Tensor, ...]:
    """The tensors of parsed JSON, checked to lie within `data_bytes` in order, without overlap.

    Raises SlotLayoutError."""
    tensors, end = [], 0
    for index, fields in enumerate(entries):
        tensor = _tensor(index, fields)
        if tensor.offset < end or tensor.offset % HEADER_ALIGN_BYTES:
            raise SlotLayoutError(
                f"tensor {tensor.name!r} starts at {tensor.offset}: overlapping or unaligned"
            )
        end = tensor.offset + tensor.nbytes
        if end > data_bytes:
            raise SlotLayoutError(
                f"tensor {tensor.name!r} ends at {end}, beyond the slot's {data_bytes} bytes"
            )
        tensors.append(tensor)
    return tuple(tensors)


def _parse(header: bytes) -> dict[str, Any]:
    try:
        content = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise SlotLayoutError(f"the slot's header is not JSON: {error}") from error
    if (
        not isinstance(content, dict)
        or "state" not in content
        or not isinstance(content.get("tensors"), list)
    ):
        raise SlotLayoutError("the slot's header has no list of tensors or no state")
    return content


def _tensor(index: int, fields: Any) -> Tensor:
    if not isinstance(fields, dict) or not fields.keys() >= _KEYS or not isinstance(fields["name"], str):
        raise SlotLayoutError(f"tensor {index} is not described by {sorted(_KEYS)}")
    name, dtype, shape, nbytes = fields["name"], fields["dtype"], fields["shape"], fields["nbytes"]
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise SlotLayoutError(f"tensor {name!r} has no usable dtype: {dtype!r}")
    if not _is_shape(shape):
        raise SlotLayoutError(f"tensor {name!r} has no usable shape: {shape!r}")
    if not _is_count(nbytes) or not _is_count(fields["offset"]):
        raise SlotLayoutError(f"tensor {name!r} has no usable offset and size")
    elements = math.prod(shape)
    if (elements == 0) != (nbytes == 0) or (elements and nbytes % elements):
        raise SlotLayoutError(f"tensor {name!r} of shape {shape} cannot have {nbytes} bytes")
    return Tensor(name, dtype, tuple(shape), fields["offset"], nbytes, *_global(name, shape, fields))


def _global(
    name: str, shape: list[int], fields: dict[str, Any]
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    if fields.get("global_shape") is None and fields.get("global_offset") is None:
        return None, None
    whole: Any = fields.get("global_shape")
    offset: Any = fields.get("global_offset")
    if not _is_shape(whole) or not _is_shape(offset) or not len(whole) == len(offset) == len(shape):
        raise SlotLayoutError(
            f"tensor {name!r} has no usable place in a larger one: {whole!r:.80}, {offset!r:.80}"
        )
    if any(at + size > all_ for at, size, all_ in zip(offset, shape, whole, strict=True)):
        raise SlotLayoutError(f"tensor {name!r} of shape {shape} at {offset} is outside of {whole}")
    return tuple(whole), tuple(offset)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(_is_count(size) for size in value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
