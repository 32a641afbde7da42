"""Write one rank's part of a `dcp.save`: its portions as chunks, its plain data, and the part's file."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed.checkpoint.planner import WriteItemType

from holdfast.checkpoint import bases, save, whole
from holdfast.checkpoint.format import cutting, names, parts, typed
from holdfast.checkpoint.writing import ChunkTarget, Writing
from holdfast.dcp import plan as dcp_plan
from holdfast.dcp.memory import Scattered
from holdfast.dcp.plan import Assignment
from holdfast.dcp.staged import Staged
from holdfast.errors import SessionError
from holdfast.ipc import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

    from holdfast.checkpoint.format.records import CheckpointPart
    from holdfast.checkpoint.storage.store import Store
    from holdfast.dcp.plan import Portion
    from holdfast.ipc.layout import Tensor


@dataclass(frozen=True, slots=True)
class Save:
    """One save of one rank: where it goes, and as which checkpoint.

    `base`: the full checkpoint whose chunks it may use. `kind`: "full" or "incremental". `codec`: "none",
    "zstd" or "auto"."""

    store: Store
    job: str
    checkpoint: str
    rank: int
    kind: str
    base: str
    codec: str


class PartWriter:
    """Writes one rank's part of one save."""

    def __init__(self, save: Save, plan: SavePlan, planner: SavePlanner) -> None:
        self._save, self._planner = save, planner
        assigned = plan.storage_data  # a cached plan may come from another writer
        own = isinstance(assigned, Assignment)
        self._portions = assigned.portions if own else tuple(map(dcp_plan.whole, plan.items))
        self._paths = _paths(plan.planner_data)

    def run(self) -> CheckpointPart:
        """Make all of it durable. Returns what the rank that finishes the save needs to know of it."""
        one, store = self._save, self._save.store
        state = self._plain()
        portions = [portion for portion in self._portions if portion.item.tensor_data is not None]
        placed, data_bytes = _place(portions)
        asking = [self._asking(portion) for portion in portions]
        memory = Scattered(placed, asking, lasting=bool(store.bundle_bytes))  # bundles keep what they read
        shard = f"{whole.DCP}.{one.rank}"
        target = ChunkTarget(one.job, one.base, one.checkpoint, shard, one.codec)
        index = bases.index(store, one.job, one.base, one.checkpoint)
        writing = Writing(store, target, index, placed, cast("memoryview", memory))
        (cuts,) = cutting.plan(placed, 1)
        refs = writing.run(cuts, nice=not self._awaited())
        part = self._part(shard, placed, data_bytes, save.placed(placed, cuts, refs), state)
        digest = save.keep(store, part)
        writing.remember()
        return save.part_record(part, "", digest, sum(cut.nbytes for cut in cuts), writing.written)

    def _part(
        self, shard: str, tensors: tuple[Tensor, ...], data_bytes: int, placed: Any, state: Any
    ) -> parts.ManifestPart:
        one = self._save
        step, generation = names.split_id(one.checkpoint)
        return parts.ManifestPart(
            job=one.job,
            id=one.checkpoint,
            step=step,
            generation=generation,
            kind=one.kind,
            base=one.base,
            shard=shard,
            share=0,
            shares=1,
            rank=one.rank,
            data_bytes=data_bytes,
            tensors=tensors,
            placed=placed,
            state=state,
        )

    def _awaited(self) -> bool:
        """Whether training waits for this save: the live state is saved, in the thread that trains."""
        values = getattr(self._planner, "state_dict", {}).values()
        staged = any(isinstance(value, Staged) for value in values)
        return not staged and threading.current_thread() is threading.main_thread()

    def _plain(self) -> Any:
        """Entries that are not tensors, as typed JSON. Raises SessionError naming one that cannot be kept."""
        plain = {
            portion.item.index.fqn: _object(self._planner, portion)
            for portion in self._portions
            if portion.item.type == WriteItemType.BYTE_IO
        }
        mine = {portion.item.index.fqn for portion in self._portions}
        try:
            return whole.encode_dcp(plain, {name: path for name, path in self._paths.items() if name in mine})
        except typed.TypedDataError as error:
            raise SessionError(f"the state dict cannot be saved: {error}") from error

    def _asking(self, portion: Portion) -> Callable[[], torch.Tensor]:
        """A function that returns a portion's tensor from the planner."""

        def ask() -> torch.Tensor:
            tensor = self._planner.resolve_data(portion.item)
            data = portion.item.tensor_data
            assert data is not None
            if not isinstance(tensor, torch.Tensor):
                raise SessionError(
                    f"{portion.item.index.fqn}: the planner returned a {type(tensor).__name__}, not a tensor"
                )
            if tensor.dtype != data.properties.dtype or tensor.shape != data.chunk.sizes:
                raise SessionError(
                    f"{portion.item.index.fqn}: planned as {data.properties.dtype} "
                    f"{tuple(data.chunk.sizes)}, the planner returned {tensor.dtype} {tuple(tensor.shape)}"
                )
            if not tensor.dim():
                return tensor
            return tensor.narrow(portion.dim, portion.start, portion.stop - portion.start)

        return ask


def _place(portions: Sequence[Portion]) -> tuple[tuple[Tensor, ...], int]:
    """The portions as tensors of a slot, each with its place in the whole tensor."""
    placed, data_bytes = layout.place(
        (portion.item.index.fqn, _dtype(portion), portion.sizes, portion.nbytes) for portion in portions
    )
    known = []
    for tensor, portion in zip(placed, portions, strict=True):
        data = portion.item.tensor_data
        assert data is not None
        known.append(
            layout.Tensor(
                tensor.name,
                tensor.dtype,
                tensor.shape,
                tensor.offset,
                tensor.nbytes,
                tuple(data.size),
                portion.offsets,
            )
        )
    return tuple(known), data_bytes


def _dtype(portion: Portion) -> str:
    data = portion.item.tensor_data
    assert data is not None
    if data.properties.layout != torch.strided:
        raise SessionError(f"{portion.item.index.fqn}: layout {data.properties.layout} cannot be saved")
    return str(data.properties.dtype).removeprefix("torch.")


def _object(planner: SavePlanner, portion: Portion) -> Any:
    """The object itself, not the pickle that the planner would make of it."""
    name, lookup = portion.item.index.fqn, getattr(planner, "lookup_object", None)
    if lookup is None:
        raise SessionError(
            f"{name} is not a tensor, and {type(planner).__name__} has no lookup_object: derive the planner "
            "from DefaultSavePlanner"
        )
    return lookup(portion.item.index)


def _paths(planner_data: Any) -> dict[str, whole.Path]:
    if planner_data is None:
        return {}
    if isinstance(planner_data, dict) and all(isinstance(path, tuple) for path in planner_data.values()):
        return planner_data
    raise SessionError(
        "the planner adds its own data to the plan, which is not saved: put it in the state dict"
    )
