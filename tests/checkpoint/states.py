"""States to save and to compare: tensors of random bytes, laid out as a rank lays them out."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.format import names, typed
from holdfast.checkpoint.load import load, read_manifest
from holdfast.checkpoint.save import finalize, persist_part, publish
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotWriter

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from controlplane.core.records.model import CheckpointPart
    from holdfast.checkpoint.save import PersistResult
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import SlotView

JOB = "job"
ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
Shapes = list[tuple[str, str, tuple[int, ...]]]
SMALL: Shapes = [("w", "float32", (40_000,)), ("b", "float32", (16,)), ("step", "int64", ())]
"""A state that makes two chunks: a large tensor, and a pack of small ones."""


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return ITEM_BYTES[dtype] * math.prod(shape)


def content(shapes: Shapes, seed: int) -> dict[str, bytes]:
    source = random.Random(seed)
    return {name: source.randbytes(nbytes(dtype, shape)) for name, dtype, shape in shapes}


def arena_for(path: Path, shapes: Shapes) -> Arena:
    _, data_bytes = layout.place((name, dtype, shape, nbytes(dtype, shape)) for name, dtype, shape in shapes)
    return Arena.create(path, layout.room(data_bytes, 64 * 1024))


def write(
    writer: SlotWriter,
    shapes: Shapes,
    values: dict[str, bytes],
    state: Any = None,
    shard: str = layout.WHOLE_STATE,
) -> SlotView:
    tensors, data_bytes = layout.place(
        (name, dtype, shape, nbytes(dtype, shape)) for name, dtype, shape in shapes
    )
    for tensor in tensors:
        writer.memory[tensor.offset : tensor.offset + tensor.nbytes] = values[tensor.name]
    writer.layout(layout.encode(tensors, typed.encode(state), shard), data_bytes)
    return writer.ready()


def snapshot(
    arena: Arena, step: int, shapes: Shapes = SMALL, *, seed: int = 0, generation: int = 1, state: Any = None
) -> SlotView:
    writer = arena.begin(step, generation, released_step=step)
    assert isinstance(writer, SlotWriter), writer
    return write(writer, shapes, content(shapes, seed), state)


def save(
    store: Store,
    slot: SlotView,
    *,
    base: str = "",
    job: str = JOB,
    show: bool = True,
    codec: str = "none",
    stop: threading.Event | None = None,
) -> PersistResult:
    """Save as the only writer, and finalize; with `show` also publish."""
    order = Order.of(slot, base, job)
    part = save_part(store, slot, order, codec=codec, stop=stop)
    result = finalize(store, parts=[part], **order.words)
    if show:
        publish(store, job, order.checkpoint, result.digest)
    return result


@dataclass(frozen=True)
class Order:
    """What the coordinator's orders to all writers of one checkpoint have in common."""

    job: str
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, slot: SlotView, base: str = "", job: str = JOB, ranks: int = 2) -> Order:
        checkpoint = names.checkpoint_id(slot.step, slot.generation)
        kind = "incremental" if base else "full"
        versions = tuple((rank, slot.step) for rank in range(ranks))
        return cls(job, checkpoint, slot.step, slot.generation, kind, base or checkpoint, versions)

    @property
    def words(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def save_part(store: Store, slot: SlotView, order: Order, **more: Any) -> CheckpointPart:
    with slot.arena.pinned(slot):
        return persist_part(slot, store=store, **order.words, **more)


def values_of(slot: SlotView) -> dict[str, bytes]:
    tensors, _ = layout.decode(slot.header, slot.data_bytes)
    return {t.name: bytes(slot.memory[t.offset : t.offset + t.nbytes]) for t in tensors}


def loaded(store: Store, path: Path, checkpoint: str, digest: str = "") -> dict[str, bytes]:
    """The tensors of a checkpoint, loaded into an arena of its own."""
    manifest = read_manifest(store, JOB, checkpoint, digest)
    with Arena.create(path, layout.room(manifest.shards[0].data_bytes, 64 * 1024)) as arena:
        step = load(store, arena, job=JOB, checkpoint=checkpoint, digest=digest)
        slot = arena.find(step)
        assert slot is not None
        return values_of(slot)
