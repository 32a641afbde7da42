"""Read one shard of a checkpoint as it was saved, for a rank that holds the same part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from holdfast.checkpoint import load as loading
from holdfast.checkpoint.storage.store import Store
from holdfast.checkpoint.whole import Box
from holdfast.dcp.fetch import Region, fetch
from holdfast.dcp.reader import newest
from holdfast.state.tracked import dtype_of

if TYPE_CHECKING:
    from typing import Any

    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose shards can be read."""

    store: Store
    manifest: Manifest

    @property
    def states(self) -> dict[str, Any]:
        """The plain data of each shard, by shard id."""
        return {shard.shard: shard.state for shard in self.manifest.shards}

    def read(self, shard_id: str) -> tuple[bytes, list[torch.Tensor]]:
        """A shard's header and its tensors. Raises LookupError, CheckpointCorrupt, StorageError."""
        shard = next((shard for shard in self.manifest.shards if shard.shard == shard_id), None)
        if shard is None:
            raise LookupError(f"checkpoint {self.manifest.id} has no shard {shard_id}")
        tensors = [torch.empty(entry.shape, dtype=dtype_of(entry.dtype)) for entry in shard.tensors]
        fetch(self.store, self.manifest, _regions(shard, tensors))
        return shard.header, tensors


def _regions(shard: ManifestShard, tensors: list[torch.Tensor]) -> list[Region]:
    regions = []
    for entry, pieces, target in zip(shard.tensors, shard.pieces, tensors, strict=True):
        if entry.nbytes:
            start = (0,) * len(entry.shape)
            regions.append(Region(Box(start, entry.shape, entry.nbytes, pieces), start, target))
    return regions


def saved(url: str, job: str, checkpoint: str = "", digest: str = "") -> Saved:
    """A job's checkpoint, or its newest one. Raises CheckpointCorrupt, CheckpointRefused, StorageError."""
    store = Store.open(url)
    found = loading.read_manifest(store, job, checkpoint, digest) if checkpoint else newest(store, job)
    return Saved(store, found)
