"""Copy between tensors at the speed of memory.

If both sides are one run of bytes, memmove copies them. torch would split the copy between its threads and
wait for them at each tensor: on busy cores that takes many times as long, and on idle ones it saves
nothing."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN_BYTES = 16 * 1024
"""Below this size torch copies on the calling thread alone."""


@torch.no_grad()
def copy(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy each (target, source) pair; both have the same shape and dtype."""
    rest = []
    for target, source in pairs:
        if source.nbytes >= _RUN_BYTES and is_run(source) and is_run(target):
            ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)
            torch.autograd.graph.increment_version(target)
        else:
            rest.append((target, source))
    if rest:
        targets, sources = zip(*rest, strict=True)
        torch._foreach_copy_(list(targets), list(sources))


def is_run(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one run of bytes in the host's memory."""
    plain = not tensor.is_conj() and not tensor.is_neg()
    return plain and tensor.device.type == "cpu" and tensor.is_contiguous()
