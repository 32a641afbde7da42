"""Copy from a GPU into an arena.

The arena's pages are registered with the CUDA driver, so that the GPU writes to them directly, on a stream
beside the one that computes. A copy starts after the work that was queued before it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("holdfast.sdk")


class GpuCopier:
    """The way from one rank's GPU to the slots of its arena."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._pinned: dict[int, int] = {}  # registered bytes by address; 0: could not be registered

    def pin(self, area: torch.Tensor) -> None:
        """Register a slot's memory, once. Copies to memory that cannot be registered work too, but slower."""
        address = area.data_ptr()
        if address in self._pinned:
            return
        status = int(_runtime().cudaHostRegister(address, area.nbytes, 0))
        if status:
            log.warning(
                "a slot of %d bytes could not be pinned for the GPU: CUDA error %d", area.nbytes, status
            )
        self._pinned[address] = 0 if status else area.nbytes

    def copy(self, targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        """Copy each source to its target, and wait until that is done."""
        device = sources[0].device
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        self._stream.synchronize()

    def release(self) -> None:
        """Undo the registrations, before the memory goes."""
        for address, nbytes in self._pinned.items():
            if nbytes:
                _runtime().cudaHostUnregister(address)
        self._pinned.clear()


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
