"""Describe a checkpoint as the metadata that torch.distributed.checkpoint's planners read.

A planner's read items become regions of stored boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from holdfast.dcp.fetch import Region
from holdfast.state.tracked import dtype_of

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import ReadItem

    from holdfast.checkpoint.whole import Box, Global, Whole


def of(whole: Whole) -> Metadata:
    """What a planner needs to know of a checkpoint."""
    known: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {
        name: tensor_metadata(tensor) for name, tensor in whole.tensors.items()
    }
    known.update((name, BytesStorageMetadata()) for name in whole.plain)
    return Metadata(known, planner_data=dict(whole.paths))


def tensor_metadata(tensor: Global) -> TensorStorageMetadata:
    """One tensor's dtype, shape and boxes."""
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype_of(tensor.dtype)),
        size=torch.Size(tensor.shape),
        chunks=[
            ChunkStorageMetadata(torch.Size(box.offset), torch.Size(box.sizes))
            for box in tensor.boxes.values()
        ],
    )


def region(tensor: Global, item: ReadItem, target: torch.Tensor) -> Region:
    """The part of a tensor that a read item asks for, with its target. Raises ValueError on a misfit."""
    if target.shape != item.lengths:
        raise ValueError(
            f"{item.dest_index.fqn}: the target has shape {tuple(target.shape)}, not {tuple(item.lengths)}"
        )
    return Region(_box(tensor, item), tuple(item.storage_offsets), target)


def _box(tensor: Global, item: ReadItem) -> Box:
    """The stored box of a read item.

    Planners give the offset at which it begins, and often its number. Of several boxes that begin there, the
    largest has the bytes."""
    boxes, index = list(tensor.boxes.values()), item.storage_index
    if index.index is not None and index.index < len(boxes):
        hinted = boxes[index.index]
        if index.offset is None or hinted.offset == tuple(index.offset):
            return hinted
    offset = tuple(index.offset) if index.offset is not None else (0,) * len(tensor.shape)
    here = [box for box in boxes if box.offset == offset]
    if not here:
        raise ValueError(f"{index.fqn}: nothing is stored at {offset}")
    return max(here, key=lambda box: box.nbytes)
