"""Save and load with torch.distributed.checkpoint in Holdfast's checkpoint format.

    writer = HoldfastWriter("s3://bucket/run", job="llm")
    dcp.save(state, storage_writer=writer, checkpoint_id=str(step))
    dcp.load(state, storage_reader=HoldfastReader("s3://bucket/run", job="llm"))

Works under a Holdfast agent and under plain torchrun. Content is verified on every read and never
overwritten, and no pickle is stored. A checkpoint saved on N ranks can be loaded on any number."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner_helpers import _create_chunk_list, create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load as torch_load
from torch.distributed.checkpoint.utils import find_tensor_shard

from holdfast.checkpoint import load as loading
from holdfast.checkpoint import whole
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import metadata as dcp_metadata
from holdfast.dcp.fetch import fetch
from holdfast.dcp.reader import HoldfastReader, newest
from holdfast.dcp.stage import HoldfastStager
from holdfast.dcp.writer import HoldfastWriter
from holdfast.errors import RestoreError
from holdfast.state.tracked import live

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch.distributed.checkpoint.planner import LoadPlanner

__all__ = ["HoldfastReader", "HoldfastStager", "HoldfastWriter", "load", "load_into"]


def load(
    state_dict: dict[str, Any],
    url: str,
    *,
    job: str,
    checkpoint: str = "",
    fallback: bool = False,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    no_dist: bool = False,
) -> str:
    """Load a checkpoint with `dcp.load`: the named one, or the newest. All ranks agree on which; returns its
    id.

    `fallback`: if its bytes are not what was written, or it is refused, all ranks take the next older one.
    Raises torch's CheckpointException with each rank's error, CheckpointRefused if there is none to load,
    StorageError if the checkpoints cannot be listed."""
    alone = no_dist or not dist.is_initialized()
    candidates = _agreed(lambda: _candidates(url, job, checkpoint), alone, process_group)
    for place, candidate in enumerate(candidates):
        reader = HoldfastReader(url, job=job, checkpoint=candidate)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                torch_load(
                    state_dict,
                    storage_reader=reader,
                    planner=planner,
                    process_group=process_group,
                    no_dist=alone,
                )
        except CheckpointException as error:
            older = place + 1 < len(candidates)
            if not (fallback and older and _rotten(error)):
                raise
        else:
            return candidate
    raise CheckpointRefused(f"job {job} has no checkpoint to load at {Store.open(url).url}")


def load_into(
    state: Mapping[str, torch.Tensor], url: str, job: str, checkpoint: str = "", digest: str = ""
) -> bytes:
    """Fill these tensors in place from a checkpoint, by the names that its slots use. For a DTensor: the
    local part.

    There are no collectives: every rank reads what it needs. Of tensors that share memory, one needs a name.
    Returns the header of one of the checkpoint's shards, for the plain data in it.

    Raises RestoreError if a name, shape or dtype does not match, CheckpointCorrupt, CheckpointRefused,
    StorageError. Then tensors may be partly filled."""
    store = Store.open(url)
    manifest = loading.read_manifest(store, job, checkpoint, digest) if checkpoint else newest(store, job)
    found = whole.by_slot(manifest)
    regions = []
    filled = {_memory(tensor) for name, tensor in state.items() if name in found.tensors}
    for name, tensor in state.items():
        stored = found.tensors.get(name)
        if stored is None and _memory(tensor) in filled:
            continue
        if stored is None:
            raise RestoreError(f"checkpoint {manifest.id} of job {job} has no tensor {name!r:.200}")
        held = dcp_metadata.tensor_metadata(stored)
        if tuple(tensor.shape) != stored.shape or tensor.dtype != held.properties.dtype:
            raise RestoreError(
                f"{name}: checkpoint {manifest.id} has {stored.dtype} {stored.shape}, this script "
                f"{tensor.dtype} {tuple(tensor.shape)}; is it another model?"
            )
        for item in create_read_items_for_chunk_list(name, held, _create_chunk_list(tensor)):
            local = find_tensor_shard(tensor, item.dest_index).detach()
            for dim, (start, size) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
                local = local.narrow(dim, start, size)
            regions.append(dcp_metadata.region(stored, item, local))
    fetch(store, manifest, regions)
    return manifest.shards[0].header


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    local = live(tensor)
    return local.data_ptr(), local.shape, local.stride(), local.dtype


def _candidates(url: str, job: str, checkpoint: str) -> list[str]:
    """The named checkpoint, or the newest; then older ones."""
    found = [entry.id for entry in loading.listing(Store.open(url), job)]
    if checkpoint:
        return [checkpoint, *found[found.index(checkpoint) + 1 :]] if checkpoint in found else [checkpoint]
    return found


def _agreed(choose: Any, alone: bool, group: dist.ProcessGroup | None) -> list[str]:
    """What the group's rank 0 chooses. If it fails, every rank raises its error."""
    if alone:
        chosen: list[str] = choose()
        return chosen
    answer: list[Any] = [None]
    if dist.get_rank(group) == 0:
        try:
            answer = [choose()]
        except Exception as error:  # raised on all ranks: the others wait for an answer
            answer = [error]
    dist.broadcast_object_list(answer, src=dist.get_global_rank(group, 0) if group else 0, group=group)
    if isinstance(answer[0], Exception):
        raise answer[0]
    return list(answer[0])


def _rotten(error: CheckpointException) -> bool:
    """Whether every rank that failed did so because of the checkpoint itself: it is damaged or refused."""
    return all(
        isinstance(cause, CheckpointCorrupt | CheckpointRefused) for cause, _ in error.failures.values()
    )
