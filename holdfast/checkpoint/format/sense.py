"""Check a parsed manifest beyond its form: nothing twice, nothing unknown, nothing superfluous.

A digest proves that a body is what its writer wrote, not that it makes sense. A manifest that does not is
refused when it is parsed, before a byte is read or memory is allocated for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.errors import CheckpointCorrupt
from holdfast.ipc.shm import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard
    from holdfast.ipc.layout import Tensor

ITEM_BYTES = {
    **dict.fromkeys(
        ("bool", "uint8", "int8", "qint8", "quint8", "quint4x2", "quint2x4", "bits8", "bits1x8"), 1
    ),
    **dict.fromkeys(("bits2x4", "bits4x2", "float4_e2m1fn_x2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "bits16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "qint32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Torch's dtypes, and the bytes of one element."""
KINDS = ("full", "incremental")
DIMENSIONS_MAX = 64


def check(manifest: Manifest) -> None:
    """Raise ValueError naming the first thing in a parsed manifest that makes no sense."""
    opens_base = manifest.id == manifest.base
    if manifest.kind not in KINDS or (manifest.kind == "full") != opens_base:
        raise ValueError(f"kind {manifest.kind!r:.40} does not fit id {manifest.id}, base {manifest.base}")
    _check_versions(manifest)
    _once("chunk", ((chunk.blake3, chunk.codec) for chunk in manifest.chunks))
    _once("shard", (shard.shard for shard in manifest.shards))
    if not manifest.shards:
        raise ValueError("it has no shards")
    for shard in manifest.shards:
        _check_shard(shard)
    _check_needed(manifest)


def check_covered(manifest: Manifest) -> None:
    """Raise CheckpointCorrupt unless the stored parts of each tensor make up the whole of it.

    For readers of all shards. The parts were disjoint when they were saved."""
    found: dict[tuple[str, str, tuple[int, ...]], set[tuple[Any, Any]]] = {}
    for shard in manifest.shards:
        for tensor in shard.tensors:
            if tensor.global_shape is not None:
                key = (tensor.name, tensor.dtype, tensor.global_shape)
                found.setdefault(key, set()).add((tensor.global_offset, tensor.shape))
    for (name, _, shape), boxes in found.items():
        elements = sum(math.prod(sizes) for _, sizes in boxes)
        if elements != math.prod(shape):
            problem = (
                f"tensor {name!r:.200} of {shape} is stored in parts that have {elements} elements together"
            )
            raise CheckpointCorrupt(manifest.id, "manifest", problem)


def _check_versions(manifest: Manifest) -> None:
    ranks = [rank for rank, _ in manifest.versions]
    _once("the version of rank", ranks)
    for rank, step in manifest.versions:
        if step != manifest.step:
            raise ValueError(
                f"the version of rank {rank} is of step {step}, but the checkpoint is of step {manifest.step}"
            )
    known = set(ranks)
    for shard in manifest.shards:
        _once(f"in shard {shard.shard} rank", shard.ranks)
        strangers = set(shard.ranks) - known
        if strangers:
            raise ValueError(f"shard {shard.shard} names rank {min(strangers)}, which has no version")


def _check_shard(shard: ManifestShard) -> None:
    boxes = ((t.name, t.global_offset) for t in shard.tensors if t.nbytes or t.global_offset is None)
    _once(f"in shard {shard.shard} tensor", boxes)
    end = 0
    for tensor in shard.tensors:
        _check_tensor(tensor)
        if tensor.offset - end >= PAGE_BYTES:
            raise ValueError(
                f"{tensor.offset - end} bytes before tensor {tensor.name!r:.80} belong to no tensor"
            )
        end = tensor.offset + tensor.nbytes
    if shard.data_bytes - end >= PAGE_BYTES:
        raise ValueError(f"shard {shard.shard} of {shard.data_bytes} bytes has {end} bytes of tensors")
    for index in _named(shard.state):
        if type(index) is not int or not 0 <= index < len(shard.tensors):
            raise ValueError(f"shard {shard.shard} has no tensor {index!r:.40}, which its state names")


def _check_tensor(tensor: Tensor) -> None:
    if tensor.dtype not in ITEM_BYTES:
        raise ValueError(f"tensor {tensor.name!r:.80} has the unknown type {tensor.dtype}")
    if len(tensor.shape) > DIMENSIONS_MAX:
        raise ValueError(f"tensor {tensor.name!r:.80} has {len(tensor.shape)} dimensions")
    if tensor.nbytes != math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]:
        wanted = f"{tensor.dtype} of shape {tensor.shape}"
        raise ValueError(f"tensor {tensor.name!r:.80} has {tensor.nbytes} bytes, which does not fit {wanted}")


def _check_needed(manifest: Manifest) -> None:
    needed = {piece.chunk for shard in manifest.shards for pieces in shard.pieces for piece in pieces}
    if len(needed) != len(manifest.chunks):
        first = next(number for number in range(len(manifest.chunks)) if number not in needed)
        more = len(manifest.chunks) - len(needed)
        raise ValueError(f"chunk number {first} belongs to no tensor ({more} such chunks)")


def _once(what: str, entries: Iterable[Hashable]) -> None:
    seen = set()
    for entry in entries:
        if entry in seen:
            raise ValueError(f"{what} {entry!r:.200} appears twice")
        seen.add(entry)


def _named(state: Any) -> Iterator[Any]:
    """Every tensor index in typed JSON: the values of objects whose only key is "tensor"."""
    left = [state]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            if value.keys() == {"tensor"}:
                yield value["tensor"]
            left += value.values()
