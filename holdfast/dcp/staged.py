"""Represent a tensor in a staging arena, with the methods that torch's checkpoint planner calls."""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from holdfast.ipc import layout


@dataclass(frozen=True, slots=True)
class LocalBox:
    """Which part of a global tensor a local one is. `present`: False on a rank outside its mesh."""

    size: tuple[int, ...]
    offset: tuple[int, ...]
    present: bool = True


def box_of(tensor: DTensor) -> LocalBox:
    """The part of a DTensor that this rank holds. Raises RuntimeError if a sum is still pending."""
    tensor._raise_if_contains_partial_placements()
    if tensor.device_mesh.get_coordinate() is None:
        return LocalBox(tuple(tensor.shape), (0,) * tensor.dim(), present=False)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return LocalBox(tuple(tensor.shape), tuple(offset))


def place_of(memory: torch.Tensor, at: layout.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor at this place of some memory (uint8)."""
    if not at.nbytes:
        return torch.empty(at.shape, dtype=dtype)
    return memory[at.offset : at.offset + at.nbytes].view(dtype).view(at.shape)


class Staged(torch.Tensor):
    """A copy in shared memory that is sent to another process as a reference to its place, not as bytes."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    place: tuple[str, int]
    box: LocalBox | None
    lease: Any

    @classmethod
    def make(cls, view: torch.Tensor, path: str, offset: int, box: LocalBox | None, lease: Any) -> Staged:
        """`view` as a staged tensor that keeps `lease` alive."""
        staged = view.as_subclass(cls)
        staged.place, staged.box, staged.lease = (path, offset), box, lease
        return staged

    def plain(self) -> torch.Tensor:
        """The same memory as an ordinary tensor, which does not keep the lease."""
        return self.as_subclass(torch.Tensor)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return _reopen, (*self.place, str(self.dtype).removeprefix("torch."), tuple(self.shape), self.box)

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        if self.box is not None and not self.box.present:
            return []
        size = torch.Size(self.box.size) if self.box else self.shape
        offset = torch.Size(self.box.offset if self.box else (0,) * self.dim())
        data = TensorWriteData(
            chunk=ChunkStorageMetadata(offset, self.shape),
            properties=TensorProperties(dtype=self.dtype),
            size=size,
        )
        kind = WriteItemType.SHARD if self.box else WriteItemType.TENSOR
        return [WriteItem(MetadataIndex(fqn, offset), kind, tensor_data=data)]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        offset = torch.Size(self.box.offset if self.box else (0,) * self.dim())
        return [ChunkStorageMetadata(offset, self.shape)]

    def __get_tensor_shard__(self, _: MetadataIndex) -> torch.Tensor:
        return self.plain()


class _Mapping:
    """Another process's arena, mapped here once."""

    def __init__(self, descriptor: int) -> None:
        self.bytes = torch.frombuffer(mmap.mmap(descriptor, os.fstat(descriptor).st_size), dtype=torch.uint8)


_mapped: weakref.WeakValueDictionary[tuple[int, int], _Mapping] = weakref.WeakValueDictionary()


def _reopen(path: str, offset: int, dtype_name: str, shape: tuple[int, ...], box: LocalBox | None) -> Staged:
    dtype: torch.dtype = getattr(torch, dtype_name)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        mapping = _mapped.get((status.st_dev, status.st_ino))
        if mapping is None:
            mapping = _mapped[status.st_dev, status.st_ino] = _Mapping(descriptor)
    finally:
        os.close(descriptor)
    nbytes = dtype.itemsize * torch.Size(shape).numel()
    view = (
        mapping.bytes[offset : offset + nbytes].view(dtype).view(shape)
        if nbytes
        else torch.empty(shape, dtype=dtype)
    )
    return Staged.make(view, path, offset, box, mapping)
