"""Reduce a rank's state to numbers that ranks can compare: for each tracked object keys and digests.

Ranks with the same key claim to hold the same content, so their digests must be equal. Buffers have a key and
digest of their own, because they may differ.

A full look reads all memory once. A look at a slice costs the same for any size: a fixed number of bytes of
each object, the next ones at the next look, so that a sweep covers everything. Data that is not a tensor is
compared at every look."""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint.format import typed
from holdfast.state import digest, shard_ids, sums
from holdfast.state import tracked as state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.snapshots.plan import ObjectPlan, SnapshotPlan
    from holdfast.state.tracked import TrackedState

SLICE_BYTES = 1 << 20
"""Bytes of one object that one look covers: less than half a millisecond of one core."""
SLICE_AWAY_BYTES = 64 << 20
"""The same for objects on a GPU: less than half a millisecond of the GPU."""

NUMBERS = 6
"""Numbers per object: key and digest of its state, of its parts of DTensors, of its buffers. A key of 0
claims nothing."""


STATE, PARTS, BUFFERS = "state", "parts", "buffers"
_NAMES = {STATE: "{}", PARTS: "shards of {}", BUFFERS: "buffers of {}"}


@dataclass(slots=True)
class _Known:
    """What stays the same of an object as long as its plan does."""

    # Tensors of each kind: their indices in order of their names, and JSON of names, dtypes and shapes.
    kinds: dict[str, tuple[list[int], bytes]]
    text: bytes  # the header text that does not change; b"" if all of it may
    views: dict[int, memoryview] = field(default_factory=dict)
    """Memory of the tensors, by their id: filled by the digest."""


class Proof:
    """Computes the numbers of the tracked objects."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        self._plan: weakref.ref[SnapshotPlan] | None = None  # weak: it must not keep a model alive
        self._known: dict[str, _Known] = {}

    def rows(self, plan: SnapshotPlan, look: int | None) -> list[int]:
        """The numbers of each object, NUMBERS of them. `look`: the number of the slice; None: everything."""
        self._renew(plan)
        return [number for part in plan.parts for number in self._row(plan, part, look)]

    def sums(self, plan: SnapshotPlan) -> list[int]:
        """The same numbers of everything, with 64-bit sums of the devices instead of digests, as int64."""
        self._renew(plan)
        return [number for part in plan.parts for number in self._sums(plan, part)]

    def _renew(self, plan: SnapshotPlan) -> None:
        """Forget what is known of another plan."""
        if self._plan is None or plan is not self._plan():
            known: dict[str, _Known] = {}
            self._plan, self._known = weakref.ref(plan, lambda _: known.clear()), known

    def _row(self, plan: SnapshotPlan, part: ObjectPlan, look: int | None) -> list[int]:
        if self._tracked.claims[part.name].per_rank:
            return [0] * NUMBERS
        known, found = self._know(part), []
        for kind, (indices, forms) in known.kinds.items():
            chosen = [plan.tensors[part.base + index] for index in indices]
            start, end = _range(chosen, look)
            seen = digest.of(digest.cut(chosen, start, end), known.views if part.kept else None)
            text = known.text + _canonical(part, part.now) if kind == STATE else b""
            found.append(self._claimed(part, kind) if chosen or text else 0)
            found.append(digest.number(forms + text + seen.to_bytes(7, "big")))
        return found

    def _sums(self, plan: SnapshotPlan, part: ObjectPlan) -> list[int]:
        if self._tracked.claims[part.name].per_rank:
            return [0] * NUMBERS
        known, found = self._know(part), []
        for kind, (indices, forms) in known.kinds.items():
            chosen = [plan.tensors[part.base + index] for index in indices]
            text = known.text + _canonical(part, part.now) if kind == STATE else b""
            key = self._claimed(part, kind) if chosen or text else 0
            found += [
                key,
                sums.signed((sums.of(chosen) + sums.text(forms + text)) % sums.MODULUS) if key else 0,
            ]
        return found

    def _claimed(self, part: ObjectPlan, kind: str) -> int:
        """The key of this content; 0 if it may differ between ranks."""
        return 0 if kind == BUFFERS and self._tracked.scattered else _key(self._tracked, part, kind)

    def names(self, plan: SnapshotPlan) -> list[tuple[str, int]]:
        """What `sums` gives numbers of, in its order: name and key. Empty content has the name ""."""
        self._renew(plan)
        found = []
        for part in plan.parts:
            own = self._tracked.claims[part.name].per_rank
            for kind, (indices, _) in self._know(part).kinds.items():
                name = _NAMES[kind].format(part.name) if indices or kind == STATE else ""
                found.append((name, 0 if own or not name else self._claimed(part, kind)))
        return found

    def _know(self, part: ObjectPlan) -> _Known:
        known = self._known.get(part.name)
        if known is None or not part.kept:
            kinds: dict[str, list[int]] = {STATE: [], PARTS: [], BUFFERS: []}
            buffers = _buffers(part)
            for index in sorted(range(len(part.names)), key=part.names.__getitem__):
                cut = part.wholes[index] is not None
                kinds[PARTS if cut else BUFFERS if index in buffers else STATE].append(index)
            formed = {
                kind: (indices, json.dumps([[part.names[i], *_form(part, i)] for i in indices]).encode())
                for kind, indices in kinds.items()
            }
            text = _canonical(part, part.text) if part.kept else b""
            known = self._known[part.name] = _Known(formed, text)
        return known

    def details(self, plan: SnapshotPlan, wanted: set[int]) -> dict[str, dict[str, list[str]]]:
        """For the objects with these keys: by key, each thing's form (dtype and shape) and digest."""
        found: dict[str, dict[str, list[str]]] = {}
        for part in plan.parts:
            for kind in (STATE, PARTS, BUFFERS):
                key = _key(self._tracked, part, kind)
                if key in wanted and not self._tracked.claims[part.name].per_rank:
                    found[str(key)] = dict(self._detail(plan, part, kind))
        return found

    def _detail(self, plan: SnapshotPlan, part: ObjectPlan, kind: str) -> Iterator[tuple[str, list[str]]]:
        for index in self._know(part).kinds[kind][0]:
            tensor = plan.tensors[part.base + index]
            form = " ".join(str(word) for word in _form(part, index))
            yield part.names[index], [form, f"{digest.of([(tensor, 0, tensor.nbytes)]):x}"]
        texts = (part.text, part.now) if part.kept and kind == STATE else (part.now,)
        for text in texts:
            if text:
                tree = typed.decode(json.loads(text), _Leaf)
                yield from ((path, ["", repr(value)]) for path, value in _leaves(tree, part.name))


def group(tracked: TrackedState, part: ObjectPlan, kind: str = "state") -> str:
    """A key for the ranks that hold the same content of this object.

    Those are the ranks of one stage that give the same shard name, and for DTensors the ranks that hold the
    same parts."""
    placed = [
        (name, whole, tuple(tensor.shape))
        for name, whole, tensor in zip(part.names, part.wholes, part.tensors, strict=True)
        if whole is not None and kind == PARTS
    ]
    place = [] if tracked.claims[part.name].shard else shard_ids.staged(tracked.at)
    return repr((kind, part.name, placed, place, tracked.claims[part.name].shard))


def _key(tracked: TrackedState, part: ObjectPlan, kind: str) -> int:
    return digest.number(group(tracked, part, kind).encode())


def _form(part: ObjectPlan, index: int) -> tuple[str, list[int]]:
    tensor = part.tensors[index]
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


def _buffers(part: ObjectPlan) -> set[int]:
    """The indices of a module's tensors that are its buffers."""
    if not isinstance(part.thing, torch.nn.Module):
        return set()
    own = {state.live(buffer).data_ptr() for buffer in part.thing.buffers() if buffer.numel()}
    own -= {state.live(parameter).data_ptr() for parameter in part.thing.parameters()}
    return {index for index, tensor in enumerate(part.tensors) if tensor.numel() and tensor.data_ptr() in own}


def _range(tensors: list[torch.Tensor], look: int | None) -> tuple[int, int]:
    """The range of bytes that this look covers."""
    total = sum(tensor.nbytes for tensor in tensors)
    if look is None:
        return 0, total
    away = any(tensor.device.type != "cpu" for tensor in tensors)
    size = SLICE_AWAY_BYTES if away else SLICE_BYTES
    start = look % max(-(-total // size), 1) * size
    return start, min(start + size, total)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Stands for a tensor: tensors are compared separately."""

    index: int


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values in a tree that are not tensors, with their paths."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            yield from _leaves(item, f"{path}.{index}")
    elif not isinstance(tree, _Leaf):
        yield path, tree


def _canonical(part: ObjectPlan, text: str) -> bytes:
    """The text without the order of keys and the numbers of tensors, which may differ between ranks."""
    if not text:
        return b""
    return json.dumps(_sorted(json.loads(text), part), separators=(",", ":")).encode()


def _sorted(data: Any, part: ObjectPlan) -> Any:
    if isinstance(data, list):
        return [_sorted(item, part) for item in data]
    if not isinstance(data, dict):
        return data
    ((tag, value),) = data.items()
    if tag == "tensor":
        return {tag: part.names[value - part.base]}
    if tag in ("dict", "ordered_dict", "counter"):
        return {"dict": sorted(([_sorted(k, part), _sorted(v, part)] for k, v in value), key=repr)}
    return {tag: _sorted(value, part)}
