"""Copy tensors at a step's start and put them back, at the cost of one concatenation per dtype and device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from holdfast.state import built, shards
from holdfast.state.digest import same_bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SMALL_BYTES = 1 << 20
"""Plain tensors up to this size are copied together."""


class TensorPlace(NamedTuple):
    """Where a module keeps a tensor: the dict of its buffers or parameters, and the key in it."""

    container: dict[str, torch.Tensor | None]
    key: str
    name: str  # the tensor's path, for messages

    @property
    def tensor(self) -> torch.Tensor | None:
        """The tensor that is there now."""
        return self.container.get(self.key)


@dataclass(slots=True)
class _Pack:
    """Small plain tensors of one dtype on one device, copied together."""

    places: list[TensorPlace]
    tensors: list[torch.Tensor]
    live: list[torch.Tensor]  # the same memory, detached
    flat: list[torch.Tensor]  # the same memory, each as one dimension
    forms: built.Forms
    copy: torch.Tensor
    versions: list[int] = field(default_factory=list)

    def holds(self) -> bool:
        """Whether each place still holds the same tensor, in the same memory and form."""
        same = [place.container.get(place.key) for place in self.places]
        return built.same_objects(same, self.tensors) and self.forms.same()


@dataclass(slots=True)
class _Single:
    """A tensor that is copied by itself: large, not contiguous, or a DTensor."""

    place: TensorPlace
    tensor: torch.Tensor
    live: torch.Tensor  # this rank's memory, detached
    form: built.Forms
    copy: torch.Tensor
    version: int = 0

    def holds(self) -> bool:
        """Whether the place still holds the same tensor, in the same memory and form."""
        return self.place.tensor is self.tensor and self.form.same()


class TensorCopies:
    """The tensors at these places, copied again at every step and put back on demand."""

    def __init__(self, places: Iterable[TensorPlace] = ()) -> None:
        self._places = list(places)
        self._packs: list[_Pack] = []
        self._singles: list[_Single] = []
        self._absent: list[TensorPlace] = []
        self._planned = False

    def keep(self) -> None:
        """Copy the present content."""
        if not self._planned or not self._hold():
            self._plan()
            return
        for pack in self._packs:
            torch.cat(pack.flat, out=pack.copy)
        for single in self._singles:
            single.copy.copy_(single.live)

    @torch.no_grad()
    def rewind(self) -> None:
        """Put back what was copied: tensors, memory and content."""
        for pack in self._packs:
            parts = torch.split(pack.copy, [tensor.numel() for tensor in pack.tensors])
            for place, tensor, live, part in zip(pack.places, pack.tensors, pack.live, parts, strict=True):
                _put(place, tensor, live)
                tensor.copy_(part.view(tensor.shape))
        for single in self._singles:
            _put(single.place, single.tensor, single.live)
            shards.local(single.tensor).copy_(single.copy)
        for place in self._absent:
            place.container[place.key] = None

    def changes(self) -> dict[str, tuple[bool, int]]:
        """By name: whether a tensor's bits differ from the copy, and how many writes were counted since."""
        found = {}
        for pack in self._packs:
            parts = torch.split(pack.copy, [tensor.numel() for tensor in pack.tensors])
            rows = zip(pack.places, pack.tensors, pack.flat, parts, pack.versions, strict=True)
            for place, tensor, flat, part, version in rows:
                found[place.name] = (not same_bits(flat, part), tensor._version - version)
        for single in self._singles:
            moved = not same_bits(shards.local(single.tensor), single.copy)
            found[single.place.name] = (moved, single.tensor._version - single.version)
        return found

    def note_versions(self) -> None:
        """Count writes to each tensor from now on."""
        for pack in self._packs:
            pack.versions = [tensor._version for tensor in pack.tensors]
        for single in self._singles:
            single.version = single.tensor._version

    def _hold(self) -> bool:
        return (
            all(pack.holds() for pack in self._packs)
            and all(single.holds() for single in self._singles)
            and all(place.tensor is None for place in self._absent)
        )

    def _plan(self) -> None:
        """Sort the places' present tensors into packs and singles, and copy them."""
        self._planned, self._packs, self._singles, self._absent = True, [], [], []
        packs: dict[tuple[torch.dtype, torch.device], list[tuple[TensorPlace, torch.Tensor]]] = {}
        for place in self._places:
            tensor = place.tensor
            if tensor is None:
                self._absent.append(place)
            elif _plain(tensor):
                packs.setdefault((tensor.dtype, tensor.device), []).append((place, tensor))
            else:
                live = shards.local(tensor).detach()
                self._singles.append(_Single(place, tensor, live, built.Forms([tensor]), live.clone()))
        self._packs = [_pack(members) for members in packs.values()]


def _pack(members: Sequence[tuple[TensorPlace, torch.Tensor]]) -> _Pack:
    tensors = [tensor for _, tensor in members]
    live = [tensor.detach() for tensor in tensors]
    flat = [tensor.view(-1) for tensor in live]
    places = [place for place, _ in members]
    return _Pack(places, tensors, live, flat, built.Forms(tensors), torch.cat(flat))


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it is a small plain tensor, which can be copied together with others."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    simple = type(tensor) in kinds and tensor.layout is torch.strided
    return simple and tensor.is_contiguous() and tensor.nbytes <= SMALL_BYTES


def _put(place: TensorPlace, tensor: torch.Tensor, live: torch.Tensor) -> None:
    """Put the same tensor back in its place, with the memory and form that it had."""
    if place.tensor is not tensor:
        place.container[place.key] = tensor
    if not shards.is_dtensor(tensor) and not built.read_alike(tensor, live):
        tensor.data = live
