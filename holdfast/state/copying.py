"""Copy between tensors at the speed of memory.

If both sides are one run of bytes, memmove copies them. torch would split the copy between its threads and
wait for them at each tensor: on busy cores that takes many times as long, and on idle ones it saves
nothing.

A restore is different: training stands still, cores are idle, and the first read of a page of shared memory
has to map it. There several threads copy large pieces, and nobody waits for another before the end."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RUN_BYTES = 16 * 1024
"""Below this size torch copies on the calling thread alone."""


_PIECE_BYTES = 8 << 20
_THREADS = 4

Pair = tuple[torch.Tensor, torch.Tensor]


@torch.no_grad()
def copy(pairs: Sequence[Pair]) -> None:
    """Copy each (target, source) pair, one after the other; both have the same shape and dtype."""
    runs, rest = _sorted_out(pairs)
    for target, source in runs:
        ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)
    _finish(runs, rest)


@torch.no_grad()
def copy_at_once(pairs: Sequence[Pair]) -> None:
    """Like `copy`, by several threads: while training stands still.

    Targets that share memory are copied one after the other, so that the last one wins as a whole."""
    runs, rest = _sorted_out(pairs)
    pieces = [
        (target.data_ptr() + at, source.data_ptr() + at, min(_PIECE_BYTES, source.nbytes - at))
        for target, source in runs
        for at in range(0, source.nbytes, _PIECE_BYTES)
    ]
    threads = min(_THREADS, len(pieces), len(os.sched_getaffinity(0)))
    if threads < 2 or _overlap(target for target, _ in runs):
        copy(pairs)
        return
    with ThreadPoolExecutor(threads, "copy") as pool:
        list(pool.map(lambda piece: ctypes.memmove(*piece), pieces))
    _finish(runs, rest)


def _sorted_out(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The pairs that are runs of bytes on both sides, and the rest."""
    runs: list[Pair] = []
    rest: list[Pair] = []
    for target, source in pairs:
        run = source.nbytes >= _RUN_BYTES and is_run(source) and is_run(target)
        (runs if run else rest).append((target, source))
    return runs, rest


def _finish(runs: list[Pair], rest: list[Pair]) -> None:
    """Tell autograd of the runs that were written, and copy the rest."""
    for target, _ in runs:
        torch.autograd.graph.increment_version(target)
    if rest:
        targets, sources = zip(*rest, strict=True)
        torch._foreach_copy_(list(targets), list(sources))


def _overlap(targets: Iterable[torch.Tensor]) -> bool:
    areas = sorted((target.data_ptr(), target.data_ptr() + target.nbytes) for target in targets)
    return any(start < end for (_, end), (start, _) in pairwise(areas))


def is_run(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one run of bytes in the host's memory."""
    plain = not tensor.is_conj() and not tensor.is_neg()
    return plain and tensor.device.type == "cpu" and tensor.is_contiguous()
