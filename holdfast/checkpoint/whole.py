"""View a checkpoint as one whole state, whatever ranks saved it.

It consists of every tensor, with the boxes that it is stored in, and the plain data. Code that reads or
exports a checkpoint as a whole starts here.

There are two kinds of names. Slots have their own ("model.state.layer.weight"). The user's names are those
that torch.distributed.checkpoint gives to the same state ("model.layer.weight"): the path in the nested dict,
joined by dots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.errors import CheckpointCorrupt
from holdfast.checkpoint.format import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard, Piece
    from holdfast.ipc.layout import Tensor

DCP = "dcp"
"""The key in a shard's state that marks it as written by `dcp.save`."""

Path = tuple[str | int, ...]
"""Keys and indices that lead to an entry of the nested dict."""


@dataclass(frozen=True, slots=True)
class Box:
    """A stored part of a tensor: where it begins, its shape, and its bytes, row by row."""

    offset: tuple[int, ...]
    sizes: tuple[int, ...]
    nbytes: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Global:
    """One tensor of the whole state. `boxes` are keyed by (offset, sizes)."""

    dtype: str
    shape: tuple[int, ...]
    boxes: dict[tuple[tuple[int, ...], tuple[int, ...]], Box] = field(default_factory=dict)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element; 0 if the tensor has none."""
        box = next((box for box in self.boxes.values() if box.nbytes), None)
        return box.nbytes // math.prod(box.sizes) if box else 0


@dataclass(slots=True)
class Whole:
    """All of a checkpoint, by name. `plain`: what is not a tensor. `paths`: places in the nested dict."""

    tensors: dict[str, Global] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)


def by_slot(manifest: Manifest) -> Whole:
    """The tensors under their slots' names, without plain data. Raises CheckpointCorrupt."""
    whole = Whole()
    for shard in manifest.shards:
        for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
            _add(whole, manifest, tensor.name, tensor, pieces)
    _check_covered(whole, manifest)
    return whole


def by_user(manifest: Manifest) -> Whole:
    """Tensors and plain data under the user's names. Raises CheckpointCorrupt."""
    whole = Whole()
    for shard in manifest.shards:
        try:
            _READERS[_kind(shard)](whole, manifest, shard)
        except (typed.TypedDataError, LookupError, TypeError, AttributeError) as error:
            problem = f"its plain data cannot be read: {error!r:.300}"
            raise CheckpointCorrupt(manifest.id, "manifest", problem) from error
    _check_covered(whole, manifest)
    return whole


def encode_dcp(plain: dict[str, Any], paths: dict[str, Path]) -> Any:
    """The state of a shard that `dcp.save` writes. Raises TypedDataError naming the entry."""
    entries = [[name, typed.encode(value, path=name)] for name, value in plain.items()]
    return {DCP: {"entries": entries, "paths": [[name, list(path)] for name, path in paths.items()]}}


def _kind(shard: ManifestShard) -> str:
    return DCP if isinstance(shard.state, dict) and DCP in shard.state else "objects"


def _add_dcp(whole: Whole, manifest: Manifest, shard: ManifestShard) -> None:
    for name, data in shard.state[DCP]["entries"]:
        whole.plain.setdefault(name, typed.decode(data, path=name))
    for name, path in shard.state[DCP]["paths"]:
        if not all(type(part) in (str, int) for part in path):
            raise TypeError(f"the path of {name!r:.80} is malformed")
        whole.paths.setdefault(name, tuple(path))
    for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
        _add(whole, manifest, tensor.name, tensor, pieces)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Stands for tensor number `number` of a shard."""

    number: int


def _add_objects(whole: Whole, manifest: Manifest, shard: ManifestShard) -> None:
    """Add a session's slot: {"objects": {name: {"state": ..., "rest": ...}}}.

    A tensor that no object names keeps the slot's name for it, so that nothing is left out."""
    left = dict(enumerate(shard.tensors))
    trees = typed.decode(shard.state["objects"], _Leaf) if shard.state else {}
    for name, tree in trees.items():
        state = tree.get("state")
        merged = {**state, **tree.get("rest", {})} if isinstance(state, dict) else tree
        for path, value in _flatten((str(name),), merged):
            key = ".".join(map(str, path))
            whole.paths.setdefault(key, path)
            if isinstance(value, _Leaf):
                _add(whole, manifest, key, shard.tensors[value.number], shard.pieces[value.number])
                left.pop(value.number, None)
            else:
                whole.plain.setdefault(key, value)
    for number, tensor in left.items():
        _add(whole, manifest, tensor.name, tensor, shard.pieces[number])


_READERS = {DCP: _add_dcp, "objects": _add_objects}


def _flatten(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """The leaves, as torch.distributed.checkpoint finds them: a list without tensors is one leaf."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flatten((*path, str(key)), item)
    elif _splits(value):
        for index, item in enumerate(value):
            yield from _flatten((*path, index), item)
    else:
        yield path, value


def _splits(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, dict | _Leaf) or _splits(item) for item in value)
    return isinstance(value, tuple) and any(isinstance(item, _Leaf) or _splits(item) for item in value)


def _add(whole: Whole, manifest: Manifest, name: str, tensor: Tensor, pieces: tuple[Piece, ...]) -> None:
    sharded = tensor.global_shape is not None and tensor.global_offset is not None
    shape = tensor.global_shape if tensor.global_shape is not None else tensor.shape
    offset = tensor.global_offset if tensor.global_offset is not None else (0,) * len(tensor.shape)
    found = whole.tensors.setdefault(name, Global(tensor.dtype, shape))
    if (found.dtype, found.shape) != (tensor.dtype, shape):
        problem = f"tensor {name!r:.200} is {found.dtype} {found.shape} here, {tensor.dtype} {shape} there"
        raise CheckpointCorrupt(manifest.id, "manifest", problem)
    inside = len(offset) == len(shape) == len(tensor.shape) and all(
        at + size <= end for at, size, end in zip(offset, tensor.shape, shape, strict=True)
    )
    if sharded and not inside:
        problem = f"tensor {name!r:.200} has a shard at {offset} of {tensor.shape}, outside its {shape}"
        raise CheckpointCorrupt(manifest.id, "manifest", problem)
    found.boxes.setdefault((offset, tensor.shape), Box(offset, tensor.shape, tensor.nbytes, pieces))


def _check_covered(whole: Whole, manifest: Manifest) -> None:
    """Raise CheckpointCorrupt unless each tensor is complete.

    Boxes of one tensor were disjoint when they were saved, so equal volumes mean that none is missing."""
    for name, tensor in whole.tensors.items():
        volume = sum(math.prod(box.sizes) for box in tensor.boxes.values())
        if volume != math.prod(tensor.shape):
            problem = f"tensor {name!r:.200} of {tensor.shape} is stored in shards of {volume} elements"
            raise CheckpointCorrupt(manifest.id, "manifest", problem)
