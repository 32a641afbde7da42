"""Stage for `dcp.async_save`: copy the state into shared memory that is allocated once and kept warm.

At most two arenas take turns. One is used again only when the save that reads it has ended, so no save reads
what a later step wrote. They are anonymous memory files: nothing is in /dev/shm, and the kernel frees them
with the last process that holds them, however it ends. Another process (`AsyncCheckpointerType.PROCESS`) maps
them through this one; nothing is copied to it."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.tensor import DTensor

from holdfast.dcp.staged import LocalBox, Staged, box_of, place_of
from holdfast.errors import AwayError, SessionError
from holdfast.ipc import layout
from holdfast.ipc.shm import ArenaError, populate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

StateDict = dict[str, Any]
ARENAS = 2
WAIT_S = 600.0
"""Seconds that `stage` waits for an arena."""
# A save that has just ended releases its copies within milliseconds, which is cheaper than more memory.
_GRACE_S = 0.05
_POLL_S = 0.002


class ArenaUse:
    """The use of an arena by one save. It ends with `end`, or when its tensors are no longer referenced."""

    def __init__(self, over: Callable[[], None]) -> None:
        self.end = weakref.finalize(self, over)


class _Arena:
    """Anonymous shared memory with every page allocated."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.free = threading.Event()
        self.free.set()
        self._descriptor = _allocate(nbytes)
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._memory = mmap.mmap(self._descriptor, nbytes)
        populate(self._memory)
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._pinned = False
        self._views: tuple[tuple[layout.Tensor, ...], list[torch.Tensor]] | None = None

    def views(self, placed: tuple[layout.Tensor, ...], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
        """Tensors at these places, made once for equal places."""
        if self._views is None or self._views[0] != placed:
            made = [place_of(self.bytes, at, dtype) for at, dtype in zip(placed, dtypes, strict=True)]
            self._views = (placed, made)
        return self._views[1]

    def pin(self) -> None:
        """Lock the pages for the GPU's copy engine, once."""
        if not self._pinned:
            status = _cudart().cudaHostRegister(self.bytes.data_ptr(), self.nbytes, 0)
            if int(status) != 0:
                raise ArenaError(f"{self.nbytes} bytes could not be pinned for the GPU: CUDA error {status}")
            self._pinned = True

    def close(self) -> None:
        """Release the memory; tensors that use it keep it alive until they are gone."""
        if self._pinned:
            _cudart().cudaHostUnregister(self.bytes.data_ptr())
            self._pinned = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class HoldfastStager(AsyncStager):
    """Copies a state dict into a warm arena, in one pass of copies at the speed of memory.

    Keep one, give it to every `dcp.async_save(..., async_stager=stager)`, and call `close` at the end. While
    running saves read all `arenas`, `stage` waits up to `wait_s` seconds for one and then raises
    SessionError."""

    _synchronize_after_execute = False

    def __init__(self, *, arenas: int = ARENAS, wait_s: float = WAIT_S) -> None:
        self._most, self._wait_s = arenas, wait_s
        self._arenas: list[_Arena] = []
        self._plan: _Plan | None = None
        self._stream: Any = None

    def stage(self, state_dict: StateDict) -> StateDict:
        """Return a copy of the state dict that training does not touch.

        Raises ArenaError if memory is short, SessionError naming a tensor that cannot be staged."""
        plan = _Plan(state_dict)
        if self._plan is not None and self._plan.forms == plan.forms:
            plan.placed, plan.nbytes = self._plan.placed, self._plan.nbytes
        else:
            plan.place()
        self._plan = plan
        arena = self._take(plan.nbytes)
        lease = ArenaUse(arena.free.set)
        try:
            views = arena.views(plan.placed, [tensor.dtype for tensor in plan.tensors])
            self._copy(arena, views, plan.tensors)
            staged = [
                Staged.make(view, arena.path, at.offset, box, lease)
                for view, at, box in zip(views, plan.placed, plan.boxes, strict=True)
            ]
            copied: StateDict = plan.rebuild(staged)
        except BaseException:
            lease.end()
            raise
        finally:
            plan.tensors = []
        return copied

    def synchronize_staging(self) -> None:
        """Do nothing: all is copied when `stage` returns."""

    def close(self) -> None:
        """Release the memory once no save reads it."""
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()

    def _take(self, nbytes: int) -> _Arena:
        begun = time.monotonic()
        if len(self._arenas) >= self._most and not any(arena.free.is_set() for arena in self._arenas):
            gc.collect()  # the frames of its exception keep a failed save alive
        while True:
            free = [arena for arena in self._arenas if arena.free.is_set()]
            fits = next((arena for arena in free if arena.nbytes >= nbytes), None)
            waited = time.monotonic() - begun
            more = not self._arenas or (len(self._arenas) < self._most and waited > _GRACE_S)
            if fits is None and (free or more):
                for small in free:  # too small: the state has grown
                    small.close()
                    self._arenas.remove(small)
                fits = _Arena(layout.room(nbytes, 0))
                self._arenas.append(fits)
            if fits is not None:
                fits.free.clear()
                return fits
            if waited > self._wait_s and len(self._arenas) >= self._most:
                raise AwayError(
                    f"stage: {self._most} earlier saves still read their copies after {self._wait_s:.0f} s; "
                    "wait for the result of the previous save, and drop futures that failed"
                )
            time.sleep(_POLL_S)

    @torch.no_grad()
    def _copy(self, arena: _Arena, views: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
        if not any(tensor.is_cuda for tensor in tensors):
            for view, tensor in zip(views, tensors, strict=True):
                view.copy_(tensor)
            return
        arena.pin()
        stream = self._stream = self._stream or _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for view, tensor in zip(views, tensors, strict=True):
                view.copy_(tensor, non_blocking=True)
        stream.synchronize()


@dataclass(frozen=True, slots=True)
class _Slot:
    """Stands for tensor number `number` in the copy of the tree."""

    number: int


class _Plan:
    """The tensors of one state dict: tied ones once, sharded ones by their local part."""

    def __init__(self, state_dict: StateDict) -> None:
        self.tensors: list[torch.Tensor] = []
        self.boxes: list[LocalBox | None] = []
        self.placed: tuple[layout.Tensor, ...] = ()
        self.nbytes = 0
        self._seen: dict[Any, int] = {}
        self._tree = self._walk(state_dict, "")
        self.forms = [(tensor.dtype, tuple(tensor.shape)) for tensor in self.tensors]
        self._seen.clear()

    def place(self) -> None:
        """Give each tensor its place."""
        self.placed, self.nbytes = layout.place(
            (str(number), str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.nbytes)
            for number, tensor in enumerate(self.tensors)
        )

    def rebuild(self, staged: list[Staged]) -> Any:
        """The tree with the staged tensors in it."""
        return _fill(self._tree, staged)

    def _walk(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, dict):
            return {key: self._walk(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, f"{path}.{index}") for index, item in enumerate(value)]
        if type(value) is tuple:
            return tuple(self._walk(item, f"{path}.{index}") for index, item in enumerate(value))
        return value

    def _tensor(self, tensor: torch.Tensor, path: str) -> _Slot:
        box = None
        if isinstance(tensor, DTensor):
            box = box_of(tensor)
            tensor = tensor.to_local()
        elif type(tensor) not in (torch.Tensor, torch.nn.Parameter, Staged):
            raise SessionError(
                f"stage: {path.lstrip('.')} is a {type(tensor).__name__}; tensors, parameters and DTensors "
                "can be staged: use FSDP2, or give async_stager=DefaultStager()"
            )
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise SessionError(f"stage: {path.lstrip('.')} of layout {tensor.layout} cannot be staged")
        tensor = tensor.detach()
        key = (
            tensor.data_ptr() if tensor.numel() else id(tensor),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            box,
        )
        number = self._seen.setdefault(key, len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
            self.boxes.append(box)
        return _Slot(number)


def _fill(value: Any, staged: list[Staged]) -> Any:
    if isinstance(value, _Slot):
        return staged[value.number]
    if isinstance(value, dict):
        return {key: _fill(item, staged) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, staged) for item in value]
    if type(value) is tuple:
        return tuple(_fill(item, staged) for item in value)
    return value


def _allocate(nbytes: int) -> int:
    descriptor = os.memfd_create("holdfast-stage", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError as error:
        os.close(descriptor)
        fix = "; free memory, or raise the container's limit" if error.errno in _FULL else ""
        raise ArenaError(
            f"cannot allocate {nbytes} bytes of memory to stage the state in: {error.strerror}{fix}"
        ) from error
    return descriptor


_FULL = (errno.ENOSPC, errno.ENOMEM, errno.EFBIG)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _stream() -> Any:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
