"""The storage writer: `dcp.save` onto Holdfast's checkpoint format.

Every rank makes its chunks and its part of the manifest durable; the coordinator rank reads all parts back,
seals and publishes. A checkpoint appears at once and whole, or not at all, and an id is never overwritten."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from agent.checkpoint import bases, cutting, layout, load, manifest, names, parts, save, typed, whole
from agent.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from agent.checkpoint.store import Store
from agent.checkpoint.writing import Target, Writing
from agent.sdk import dcp_plan
from agent.sdk.dcp_memory import Scattered
from agent.sdk.dcp_plan import Assignment
from agent.sdk.dcp_stage import HoldfastStager, StateDict
from agent.sdk.dcp_staged import Staged
from agent.sdk.errors import SessionError
from controlplane.core.model import CheckpointPart

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlanner

    from agent.checkpoint.layout import Tensor
    from agent.sdk.dcp_plan import Portion

KINDS = ("full", "incremental")
_PART = MetadataIndex("holdfast.part")


class HoldfastWriter(StorageWriter):
    """Saves as checkpoint `<step>-<generation>` of a job at an fsspec URL.

    One writer serves many saves: `dcp.save(..., storage_writer=writer, checkpoint_id="<step>")`. `kind`
    "incremental" writes only what the base does not have yet; `base`: its full checkpoint's id, by default
    that of the newest checkpoint. `codec`: none, zstd or auto. With `dcp.async_save` it stages into warm
    shared memory of its own, or into `stager`'s; call `close` after the last save."""

    _synchronize_after_execute = False  # of torch's AsyncStager protocol

    def __init__(
        self,
        url: str,
        *,
        job: str,
        step: int = -1,
        generation: int = 0,
        kind: str = "full",
        base: str = "",
        codec: str = "none",
        stager: HoldfastStager | None = None,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise SessionError(f"kind {kind!r}: full or incremental")
        names.manifests(job)  # an unusable name is refused now
        self.url, self.job, self.kind, self.base, self.codec = url, job, kind, base, codec
        self.checkpoint_id = names.checkpoint_id(step, generation) if step >= 0 else ""
        self._generation = generation
        self._stager = stager
        self._store: Store | None = None
        self._rank = 0
        self._base = ""  # of the save that runs

    # ------------------------------------------------------------------ of StorageWriter

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this could be an id of ours. Never guessed from a path: give the writer itself."""
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Save under another id next: "<step>" or "<step>-<generation>". Raises NameRefused."""
        if checkpoint_id is None:
            return
        name = str(checkpoint_id)
        self.checkpoint_id = name if "-" in name else f"{name}-{self._generation}"
        names.split_id(self.checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by torch on every rank."""
        if not kwargs.get("use_collectives", True):
            raise SessionError(
                "use_collectives=False: a checkpoint is sealed by one rank for all; leave it at True"
            )
        if not self.checkpoint_id:
            raise SessionError("no step: give HoldfastWriter(step=...) or dcp.save(checkpoint_id='<step>')")
        self._rank = kwargs.get("rank", 0)
        self._store = self._store or Store.open(self.url)
        self._base = self._choose_base()  # parts of different bases do not make a checkpoint

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Note what this rank holds before the planner takes from it what others write."""
        return _replace(plan, dcp_plan.held(plan)) if plan.usable else plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: the id must be free; then what several hold alike is shared between them."""
        self._check_free()
        fresh = [plan.usable for plan in plans]
        if not any(fresh):
            return plans
        if not all(fresh):
            raise SessionError(
                "the state has changed on some ranks while enable_plan_caching holds the plans of the "
                "others: make the planner without it"
            )
        assigned = dcp_plan.assign(plans)
        return [_replace(plan, own) for plan, own in zip(plans, assigned, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Make this rank's chunks and its part durable. Every failure is raised, so that torch tells all."""
        part = _Write(self, self._base, plan, planner).run()
        done: Future[list[WriteResult]] = Future()
        done.set_result([WriteResult(_PART, part.bytes_written, part)])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator: read the parts back, check that they are all of the state, publish."""
        step, generation = names.split_id(self.checkpoint_id)
        told: list[CheckpointPart] = [result.storage_data for rank in results for result in rank]
        sealed = save.seal(
            self.store,
            job=self.job,
            checkpoint=self.checkpoint_id,
            step=step,
            generation=generation,
            kind=self.kind,
            base=self._base,
            versions=tuple((rank, step) for rank in range(len(results))),
            parts=told,
        )
        made = manifest.unseal(sealed.manifest, self.job, self.checkpoint_id, sealed.digest)
        _check_complete(metadata, whole.by_user(made), self.checkpoint_id)
        self._publish(sealed.digest)

    def _publish(self, digest: str) -> None:
        self._check_free()
        try:
            save.publish(self.store, self.job, self.checkpoint_id, digest)
        except CheckpointCorrupt:
            self._check_free()  # another save of this id was a moment faster
            raise

    # ------------------------------------------------------------------ of AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        """`stage` has copied everything when it returns."""
        return False

    def stage(self, state_dict: StateDict) -> StateDict:
        """Copy the state into warm shared memory. Raises ArenaError, SessionError."""
        if self._stager is None:
            self._stager = HoldfastStager()
        return self._stager.stage(state_dict)

    def synchronize_staging(self) -> None:
        """Nothing is left to do when `stage` has returned."""

    def close(self) -> None:
        """Give the staging memory back."""
        if self._stager is not None:
            self._stager.close()

    # ------------------------------------------------------------------ within

    @property
    def store(self) -> Store:
        """The storage, opened."""
        if self._store is None:
            self._store = Store.open(self.url)
        return self._store

    @property
    def rank(self) -> int:
        """This process's rank in the save's group."""
        return self._rank

    def __getstate__(self) -> dict[str, Any]:
        """For a save in another process: what it opened, and the copies, stay here."""
        return {**self.__dict__, "_store": None, "_stager": None}

    def _check_free(self) -> None:
        name = names.manifest(self.job, self.checkpoint_id)
        if self.store.size(name) is not None:
            raise CheckpointRefused(
                f"checkpoint {self.checkpoint_id} of job {self.job} exists at {self.store.url} and is never "
                "overwritten: save under another step or generation"
            )

    def _choose_base(self) -> str:
        if self.kind == "full":
            return self.checkpoint_id
        if self.base:
            return self.base
        for found in load.listing(self.store, self.job):
            try:
                return load.read_manifest(self.store, self.job, found.id).base
            except CheckpointError:  # not one to build on; an older one may be
                continue
        raise CheckpointRefused(
            f"checkpoint {self.checkpoint_id} of job {self.job} cannot be incremental: {self.store.url} "
            "has no full one to build on"
        )


class _Write:
    """One rank's part of one save."""

    def __init__(self, writer: HoldfastWriter, base: str, plan: SavePlan, planner: SavePlanner) -> None:
        self._writer, self._base, self._planner = writer, base, planner
        assigned = plan.storage_data  # a cached plan may be another writer's
        own = isinstance(assigned, Assignment)
        self._portions = assigned.portions if own else tuple(map(dcp_plan.whole, plan.items))
        self._paths = _paths(plan.planner_data)

    def run(self) -> CheckpointPart:
        """Make all of it durable; what the coordinator is to know of it."""
        writer, store = self._writer, self._writer.store
        state = self._plain()
        portions = [portion for portion in self._portions if portion.item.tensor_data is not None]
        placed, data_bytes = _place(portions)
        memory = Scattered(placed, [self._asking(portion) for portion in portions])
        shard = f"{whole.DCP}.{writer.rank}"
        target = Target(writer.job, self._base, writer.checkpoint_id, shard, writer.codec)
        index = bases.index(store, writer.job, self._base)
        writing = Writing(store, target, index, placed, cast("memoryview", memory))
        (cuts,) = cutting.plan(placed, 1)
        refs = writing.run(cuts, nice=not self._awaited())
        digest = self._keep(shard, placed, data_bytes, save.placed(placed, cuts, refs), state)
        writing.remember()
        return self._told(shard, digest, sum(cut.nbytes for cut in cuts), writing.written)

    def _keep(self, shard: str, tensors: tuple[Tensor, ...], data_bytes: int, placed: Any, state: Any) -> str:
        """Make the part durable; its digest."""
        writer, store = self._writer, self._writer.store
        step, generation = names.split_id(writer.checkpoint_id)
        part = parts.Part(
            job=writer.job,
            id=writer.checkpoint_id,
            step=step,
            generation=generation,
            kind=writer.kind,
            base=self._base,
            shard=shard,
            share=0,
            shares=1,
            rank=writer.rank,
            data_bytes=data_bytes,
            tensors=tensors,
            placed=placed,
            state=state,
        )
        content, digest = parts.seal(part)
        store.flush()
        store.put(names.part(writer.job, writer.checkpoint_id, digest), content)
        store.flush()
        return digest

    def _told(self, shard: str, digest: str, total: int, written: int) -> CheckpointPart:
        """What the coordinator is to know of the part."""
        step, generation = names.split_id(self._writer.checkpoint_id)
        return CheckpointPart(
            job=self._writer.job,
            checkpoint=self._writer.checkpoint_id,
            shard=shard,
            share=0,
            shares=1,
            rank=self._writer.rank,
            member="",
            step=step,
            generation=generation,
            digest=digest,
            bytes_total=total,
            bytes_written=written,
        )

    def _awaited(self) -> bool:
        """Whether training waits for this save: the live state is saved, in the thread that trains."""
        values = getattr(self._planner, "state_dict", {}).values()
        staged = any(isinstance(value, Staged) for value in values)
        return not staged and threading.current_thread() is threading.main_thread()

    def _plain(self) -> Any:
        """What is no tensor, as typed JSON. Raises SessionError, naming the entry that cannot be kept."""
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
        def ask() -> torch.Tensor:
            tensor = self._planner.resolve_data(portion.item)
            data = portion.item.tensor_data
            assert data is not None
            if not isinstance(tensor, torch.Tensor):
                raise SessionError(f"{portion.item.index.fqn}: the planner gave a {type(tensor).__name__}")
            if tensor.dtype != data.properties.dtype or tensor.shape != data.chunk.sizes:
                raise SessionError(
                    f"{portion.item.index.fqn}: planned as {data.properties.dtype} "
                    f"{tuple(data.chunk.sizes)}, the planner gave {tensor.dtype} {tuple(tensor.shape)}"
                )
            if not tensor.dim():
                return tensor
            return tensor.narrow(portion.dim, portion.start, portion.stop - portion.start)

        return ask


def _place(portions: Sequence[Portion]) -> tuple[tuple[Tensor, ...], int]:
    """The portions as tensors of a slot, each with its place in the whole one."""
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
            f"{name} is no tensor and {type(planner).__name__} has no lookup_object: derive the planner from "
            "DefaultSavePlanner"
        )
    return lookup(portion.item.index)


def _paths(planner_data: Any) -> dict[str, whole.Path]:
    if planner_data is None:
        return {}
    if isinstance(planner_data, dict) and all(isinstance(path, tuple) for path in planner_data.values()):
        return planner_data
    raise SessionError(
        "the planner adds data of its own to the plan, which is not kept: save it in the state dict"
    )


def _replace(plan: SavePlan, storage_data: Any) -> SavePlan:
    return SavePlan(plan.items, storage_data, plan.planner_data, plan.usable)


def _check_complete(metadata: Metadata, found: whole.Whole, checkpoint: str) -> None:
    """Raises CheckpointRefused unless the parts hold all that was planned."""
    for name, planned in metadata.state_dict_metadata.items():
        if isinstance(planned, BytesStorageMetadata):
            there = name in found.plain
        else:
            there = name in found.tensors and found.tensors[name].shape == tuple(planned.size)
        if not there:
            raise CheckpointRefused(f"checkpoint {checkpoint}: {name} was planned, and no rank has saved it")
