"""Read with `dcp.load` from any checkpoint of a job, on any number of ranks.

It may have been saved by `dcp.save` or by agents. Each rank reads and verifies the chunks that its part
needs."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from holdfast.checkpoint import load, whole
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from holdfast.checkpoint.format import names
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import metadata as dcp_metadata
from holdfast.dcp.fetch import Region, fetch

if TYPE_CHECKING:
    import os

    from torch.distributed.checkpoint.planner import LoadPlanner

    from holdfast.checkpoint.format.manifest_records import Manifest

log = logging.getLogger("holdfast.sdk.dcp")


class HoldfastReader(StorageReader):
    """Reads a checkpoint of a job: the one with this id, or the newest whose manifest is valid.

        dcp.load(state, storage_reader=HoldfastReader("s3://bucket/run", job="llm"))

    - `url`: an fsspec URL or a path.
    - `job`: the name under which it was saved.
    - `checkpoint`: its id, "<step>-<generation>"; "": the newest.
    - `digest`: what its manifest must hash to; "": not known.

    A byte that is not as it was written raises CheckpointCorrupt, naming the chunk, on every rank. To fall
    back to an older checkpoint then, use `holdfast.dcp.load(..., fallback=True)`."""

    def __init__(self, url: str, *, job: str, checkpoint: str = "", digest: str = "") -> None:
        super().__init__()
        names.manifests(job)  # raises NameRefused for an unusable name
        self.url, self.job, self.checkpoint_id, self.digest = url, job, checkpoint, digest
        self._store: Store | None = None
        self._manifest: Manifest | None = None
        self._whole = whole.Whole()
        self._failed: CheckpointError | None = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Always False: torch must not guess this reader from a path. Give the reader itself."""
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Read another checkpoint next: "<step>-<generation>", or "" for the newest."""
        if checkpoint_id is not None:
            self.checkpoint_id, self.digest = str(checkpoint_id), ""

    def read_metadata(self) -> Metadata:
        """Called by torch on every rank. torch would swallow an error here: it is kept and raised later."""
        self._failed = None
        try:
            self._manifest = self.open()
            self._whole = whole.by_user(self._manifest)
        except CheckpointError as error:
            self._failed = error
            return Metadata({})
        return dcp_metadata.of(self._whole)

    def open(self) -> Manifest:
        """The manifest to be read. Raises CheckpointCorrupt, CheckpointRefused, StorageError."""
        self._store = self._store or Store.open(self.url)
        if self.checkpoint_id:
            return load.read_manifest(self._store, self.job, self.checkpoint_id, self.digest)
        return newest(self._store, self.job)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Called by torch on every rank. Raises the error that reading the metadata has met."""
        if self._failed is not None:
            raise self._failed

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Tell the coordinator rank which checkpoint this rank has found."""
        return LoadPlan(plan.items, self.manifest.id, plan.planner_data)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator rank: check that all ranks read the same. Raises CheckpointRefused."""
        found = sorted({str(plan.storage_data) for plan in plans})
        if len(found) > 1:
            raise CheckpointRefused(
                f"job {self.job}: ranks disagree on the newest checkpoint ({' and '.join(found)}), because "
                "one was published meanwhile: load again, or name one"
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill what the planner names. Raises CheckpointCorrupt naming the chunk, StorageError."""
        regions, targets = [], []
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, _pickled(self._whole.plain[name]))
                continue
            target = planner.resolve_tensor(item)
            regions.append(dcp_metadata.region(self._whole.tensors[name], item, target.detach()))
            targets.append((item, target))
        assert self._store is not None
        fetch(self._store, self.manifest, regions)
        for item, target in targets:
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @property
    def manifest(self) -> Manifest:
        """The manifest that was read last. Raises CheckpointError if there is none."""
        if self._manifest is None:
            raise CheckpointError("no checkpoint has been read yet")
        return self._manifest


def newest(store: Store, job: str) -> Manifest:
    """The newest checkpoint whose manifest is valid and whose state is not suspect. Raises CheckpointRefused
    if there is none."""
    passed = []
    for found in load.listing(store, job):
        if found.suspect:
            log.warning("skipped a suspect checkpoint: %s: %s", found.id, found.suspect)
            passed.append(f"{found.id}: {found.suspect}")
            continue
        try:
            return load.read_manifest(store, job, found.id)
        except (CheckpointCorrupt, CheckpointRefused) as error:
            log.warning("skipped an unusable checkpoint: %s", error)
            passed.append(str(error))
    seen = f": {'; '.join(passed)}" if passed else ""
    raise CheckpointRefused(f"job {job} has no checkpoint to load at {store.url}{seen}")


def _pickled(value: Any) -> io.BytesIO:
    """Plain data as torch's planner wants it, in this process's memory only: no pickle is stored."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


__all__ = ["HoldfastReader", "Region", "newest"]
