"""Digest tensors, to tell whether two ranks hold the same bits in the same order.

NaN equals the same NaN, -0.0 is not 0.0, and two rows that changed places are seen. Host memory is digested
by crc32 (4 to 5 GB/s on one core; sums of weighted words in torch reach 0.7 to 3). Memory of another device
is digested by sums of its 32-bit words with random 64-bit weights, block by block, so that only the sums are
copied to the host."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import zlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BLOCK_WORDS = 1 << 15
_BUCKET_BYTES = 16 << 20
"""Bytes that are weighted at once on a device. That takes six times as much memory for a moment."""

Piece = tuple[torch.Tensor, int, int]
"""A tensor and a range [start, end) of its bytes in logical order."""


def cut(tensors: Sequence[torch.Tensor], start: int, end: int) -> Iterator[Piece]:
    """The pieces of these tensors that lie in [start, end) of their bytes, put one after the other."""
    at = 0
    for tensor in tensors:
        first, last = max(start - at, 0), min(end - at, tensor.nbytes)
        if first < last:
            yield tensor, first, last
        at += tensor.nbytes
        if at >= end:
            return


@torch.no_grad()
def of(pieces: Iterable[Piece], views: dict[int, memoryview] | None = None) -> int:
    """A 56-bit digest of these bytes in their order.

    `views`: memory of tensors that stay, by their id. It is filled here and saves finding that memory
    again."""
    crc, away = 0, _Away()
    for tensor, start, end in pieces:
        if tensor.device.type == "cpu":
            view = views.get(id(tensor)) if views is not None else None
            if view is None:
                view = memory(tensor)
                if views is not None and shared(tensor):
                    views[id(tensor)] = view
            crc = zlib.crc32(view[start:end], crc)
        else:
            away.add(tensor, start, end)
    return number(crc.to_bytes(4, "big") + away.sums())


def whole(tensor: torch.Tensor) -> int:
    """A digest of all bits of one tensor. Waits for the device if it is not on the host."""
    return of([(tensor, 0, tensor.nbytes)])


@torch.no_grad()
def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two plain tensors of the same dtype and shape hold the same bits."""
    return torch.equal(flat(left), flat(right))


def number(data: bytes) -> int:
    """A 56-bit hash of these bytes, which fits into a message between ranks."""
    return int.from_bytes(hashlib.blake2s(data, digest_size=7).digest(), "big")


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a host tensor in logical order: its own memory if they lie so there, else a copy.

    Valid while the tensor lives, or, for a copy, while the view does."""
    if not tensor.nbytes:
        return memoryview(b"")
    whole = _plain(tensor)
    area: Any = (ctypes.c_char * whole.nbytes).from_address(whole.data_ptr())
    area.holder = whole
    return memoryview(area).cast("B")


def writes(tensor: torch.Tensor) -> int:
    """How often the tensor was written, as torch counts it (not through `.data`); -1: it is not counted."""
    return -1 if tensor.is_inference() else tensor._version


def shared(tensor: torch.Tensor) -> bool:
    """Whether `memory` shows the tensor's own bytes, so that later writes are seen through it."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in logical order: a view of its own memory if they lie so there, else a copy."""
    return _plain(tensor).reshape(-1).view(torch.uint8)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class _Away:
    """Pieces on another device than the host."""

    def __init__(self) -> None:
        self._waiting: list[torch.Tensor] = []
        self._bytes = 0
        self._sums: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor, start: int, end: int) -> None:
        """Add one more piece."""
        for part in torch.split(flat(tensor)[start:end], _BUCKET_BYTES):
            self._waiting.append(part)
            self._bytes += part.numel()
            if self._bytes >= _BUCKET_BYTES:
                self._weigh()

    def sums(self) -> bytes:
        """The sums over all pieces as bytes. Waits for the device once."""
        if self._waiting:
            self._weigh()
        return b"".join(str(sums.tolist()).encode() for sums in self._sums)

    def _weigh(self) -> None:
        joined = torch.cat(self._waiting)
        self._waiting, self._bytes = [], 0
        self._sums.append(weigh(joined))


def weigh(data: torch.Tensor) -> torch.Tensor:
    """The weighted sums of these bytes, one per block."""
    size = _BLOCK_WORDS * 4
    padded = torch.zeros(-(-data.numel() // size) * size, dtype=torch.uint8, device=data.device)
    padded[: data.numel()] = data
    words = padded.view(torch.int32).view(-1, _BLOCK_WORDS)
    return (words.long() * weights(data.device)).sum(1)


@functools.cache
def weights(device: torch.device) -> torch.Tensor:
    """Random odd 64-bit weights, the same in every process: words that change places do not cancel out."""
    drawn = torch.Generator().manual_seed(0x686F6C64)
    halves = torch.randint(0, 1 << 32, (2, _BLOCK_WORDS), dtype=torch.int64, generator=drawn)
    return ((halves[0] << 32) | halves[1] | 1).to(device)
