"""Copies of a model's buffers from a step's start, at the price of one concatenation per type and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_SMALL_BYTES = 1 << 20
"""Up to this size a buffer is copied at every step: batch norm writes its own without telling autograd's
version counter. Larger ones (masks, tables) are copied when their version says so."""

_Place = tuple[dict[str, torch.Tensor | None], str]


@dataclass(slots=True)
class _Pack:
    """Small plain buffers of one type on one device, copied together."""

    places: list[_Place]
    tensors: list[torch.Tensor]
    addresses: list[int]
    flat: list[torch.Tensor]  # the same memory, each in one dimension
    copy: torch.Tensor

    def holds(self) -> bool:
        """Whether every buffer is still the same memory."""
        same = [container.get(name) for container, name in self.places]
        return all(map(_is, same, self.tensors)) and self.addresses == [t.data_ptr() for t in self.tensors]


@dataclass(slots=True)
class _Single:
    """Any other buffer."""

    place: _Place
    tensor: torch.Tensor
    version: int
    copy: torch.Tensor


class Buffers:
    """The buffers of these modules, kept and put back."""

    def __init__(self, modules: Iterable[torch.nn.Module] = ()) -> None:
        self._places: list[_Place] = [
            (module._buffers, name)
            for root in modules
            for module in root.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._packs: list[_Pack] = []
        self._singles: list[_Single] = []
        self._planned = False

    def keep(self) -> None:
        """Copy what may change in the coming step."""
        if not self._planned or not self._hold():
            self._plan()
        for pack in self._packs:
            torch.cat(pack.flat, out=pack.copy)
        for single in self._singles:
            if single.tensor._version != single.version or single.tensor.nbytes <= _SMALL_BYTES:
                single.copy.copy_(single.tensor.detach())
                single.version = single.tensor._version

    @torch.no_grad()
    def rewind(self) -> None:
        """Put back what was kept."""
        for pack in self._packs:
            parts = torch.split(pack.copy, [tensor.numel() for tensor in pack.tensors])
            for place, tensor, part in zip(pack.places, pack.tensors, parts, strict=True):
                _put(place, tensor)
                tensor.copy_(part.view(tensor.shape))
        for single in self._singles:
            _put(single.place, single.tensor)
            if single.tensor.nbytes <= _SMALL_BYTES or single.tensor._version != single.version:
                single.tensor.copy_(single.copy)

    def _hold(self) -> bool:
        return all(pack.holds() for pack in self._packs) and all(
            single.place[0].get(single.place[1]) is single.tensor for single in self._singles
        )

    def _plan(self) -> None:
        self._planned, self._packs, self._singles = True, [], []
        packs: dict[tuple[torch.dtype, torch.device], list[tuple[_Place, torch.Tensor]]] = {}
        for container, name in self._places:
            tensor = container.get(name)
            if tensor is None:
                continue
            place = (container, name)
            if _plain(tensor):
                packs.setdefault((tensor.dtype, tensor.device), []).append((place, tensor))
            else:
                self._singles.append(_Single(place, tensor, tensor._version, tensor.detach().clone()))
        for members in packs.values():
            tensors = [tensor for _, tensor in members]
            flat = [tensor.view(-1) for tensor in tensors]
            addresses = [tensor.data_ptr() for tensor in tensors]
            self._packs.append(
                _Pack([place for place, _ in members], tensors, addresses, flat, torch.cat(flat))
            )


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it can be seen in one dimension, and so copied with others."""
    simple = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return simple and tensor.is_contiguous() and not tensor.requires_grad and tensor.nbytes <= _SMALL_BYTES


def _is(left: object, right: object) -> bool:
    return left is right


def _put(place: _Place, tensor: torch.Tensor) -> None:
    container, name = place
    if container.get(name) is not tensor:
        container[name] = tensor
