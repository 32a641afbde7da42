"""Write with `dcp.save` in Holdfast's checkpoint format.

Every rank makes its chunks and its part of the manifest durable. The coordinator rank reads all parts back,
finalizes the manifest and publishes it. A checkpoint appears complete or not at all, and an id is never
overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from holdfast.checkpoint import load, save, whole
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from holdfast.checkpoint.format import manifest, names
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import plan as dcp_plan
from holdfast.dcp.part import PartWriter, Save
from holdfast.dcp.stage import HoldfastStager, StateDict
from holdfast.errors import SessionError

if TYPE_CHECKING:
    import os

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlanner

    from holdfast.checkpoint.format.records import CheckpointPart

KINDS = ("full", "incremental")
_PART = MetadataIndex("holdfast.part")


class HoldfastWriter(StorageWriter):
    """Saves as checkpoint `<step>-<generation>` of a job.

        writer = HoldfastWriter("s3://bucket/run", job="llm")
        dcp.save(state, storage_writer=writer, checkpoint_id=str(step))

    One writer serves many saves. With `dcp.async_save` it stages into warm shared memory; call `close` after
    the last save.

    - `url`: an fsspec URL or a path.
    - `job`: letters, digits, '.', '_', '-'; at most 63.
    - `step`, `generation`: the id, if `checkpoint_id` does not give one.
    - `kind`: "full", or "incremental": write only chunks that the base does not have.
    - `base`: of an incremental one, the id of the base's full checkpoint; "": the newest checkpoint's base.
    - `codec`: "none", "zstd", or "auto": compress if measurements say that it pays.
    - `stager`: staging memory to use; None: its own.

    Raises SessionError, NameRefused."""

    _synchronize_after_execute = False  # part of torch's AsyncStager protocol

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
            raise SessionError(f"kind {kind!r} must be full or incremental")
        names.manifests(job)  # raises NameRefused for an unusable name
        self.url, self.job, self.kind, self.base, self.codec = url, job, kind, base, codec
        self.checkpoint_id = names.checkpoint_id(step, generation) if step >= 0 else ""
        self._generation = generation
        self._stager = stager
        self._store: Store | None = None
        self._rank = 0
        self._base = ""  # base of the running save

    # ------------------------------------------------------------------ of StorageWriter

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Always False: torch must not guess this writer from a path. Give the writer itself."""
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
                "use_collectives=False is not supported, because one rank finishes the checkpoint for all: "
                "leave it True"
            )
        if not self.checkpoint_id:
            raise SessionError("no step: give HoldfastWriter(step=...) or dcp.save(checkpoint_id='<step>')")
        self._rank = kwargs.get("rank", 0)
        self._store = self._store or Store.open(self.url)
        self._base = self._choose_base()  # all parts of a checkpoint must have the same base

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Note what this rank holds, before the planner removes what others write."""
        return _replace(plan, dcp_plan.held(plan)) if plan.usable else plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator rank: check that the id is free, then share what several ranks hold alike."""
        self._check_free()
        fresh = [plan.usable for plan in plans]
        if not any(fresh):
            return plans
        if not all(fresh):
            raise SessionError(
                "the state has changed on some ranks only, and enable_plan_caching reuses the plans of the "
                "others: make the planner without it"
            )
        assigned = dcp_plan.assign(plans)
        return [_replace(plan, own) for plan, own in zip(plans, assigned, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Make this rank's chunks and its part durable. Every failure is raised: torch reports it to all
        ranks."""
        one = Save(self.store, self.job, self.checkpoint_id, self._rank, self.kind, self._base, self.codec)
        part = PartWriter(one, plan, planner).run()
        done: Future[list[WriteResult]] = Future()
        done.set_result([WriteResult(_PART, part.bytes_written, part)])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator rank: read the parts back, check that they are the whole state, and publish."""
        step, generation = names.split_id(self.checkpoint_id)
        reported: list[CheckpointPart] = [result.storage_data for rank in results for result in rank]
        finalized = save.finalize(
            self.store,
            job=self.job,
            checkpoint=self.checkpoint_id,
            step=step,
            generation=generation,
            kind=self.kind,
            base=self._base,
            versions=tuple((rank, step) for rank in range(len(results))),
            parts=reported,
        )
        made = manifest.decode_manifest(finalized.manifest, self.job, self.checkpoint_id, finalized.digest)
        _check_complete(metadata, whole.by_user(made), self.checkpoint_id)
        self._publish(finalized.digest)

    def _publish(self, digest: str) -> None:
        self._check_free()
        try:
            save.publish(self.store, self.job, self.checkpoint_id, digest)
        except CheckpointCorrupt:
            self._check_free()  # another save of this id has just been published
            raise

    # ------------------------------------------------------------------ of AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Always False: `stage` has copied everything when it returns."""
        return False

    def stage(self, state_dict: StateDict) -> StateDict:
        """Copy the state into warm shared memory. Raises ArenaError, SessionError."""
        if self._stager is None:
            self._stager = HoldfastStager()
        return self._stager.stage(state_dict)

    def synchronize_staging(self) -> None:
        """Do nothing: all is copied when `stage` returns."""

    def close(self) -> None:
        """Release the staging memory."""
        if self._stager is not None:
            self._stager.close()

    # ------------------------------------------------------------------ within

    @property
    def store(self) -> Store:
        """The storage, opened."""
        if self._store is None:
            self._store = Store.open(self.url)
        return self._store

    def __getstate__(self) -> dict[str, Any]:
        """For a save in another process: open storages and staged copies stay here."""
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
            except CheckpointError:  # cannot be built on; an older one may
                continue
        raise CheckpointRefused(
            f"checkpoint {self.checkpoint_id} of job {self.job} cannot be incremental: {self.store.url} "
            "has no full one to build on"
        )


def _replace(plan: SavePlan, storage_data: Any) -> SavePlan:
    return SavePlan(plan.items, storage_data, plan.planner_data, plan.usable)


def _check_complete(metadata: Metadata, found: whole.Whole, checkpoint: str) -> None:
    """Raise CheckpointRefused unless the parts hold all that was planned."""
    for name, planned in metadata.state_dict_metadata.items():
        if isinstance(planned, BytesStorageMetadata):
            there = name in found.plain
        else:
            there = name in found.tensors and found.tensors[name].shape == tuple(planned.size)
        if not there:
            raise CheckpointRefused(f"checkpoint {checkpoint}: {name} was planned, but no rank has saved it")
