"""Copy tensors at a step's start and put them back, at the cost of one concatenation per dtype and device.

Small ones on the host are copied without torch, whose operations take longer than such a copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from holdfast.state import built, digest, shards
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
    """Small plain tensors of one dtype on one device, or all those on the host, copied together."""

    places: list[TensorPlace]
    tensors: list[torch.Tensor]
    live: list[torch.Tensor]  # the same memory, detached
    copies: list[torch.Tensor]  # of the same shapes
    forms: built.Forms
    versions: list[int] = field(default_factory=list)
    # Where the tensors are.
    containers: list[dict[str, torch.Tensor | None]] = field(init=False)
    keys: list[str] = field(init=False)
    # On the host: the memory of each copy and of its tensor.
    memory: list[tuple[memoryview, memoryview]] = field(default_factory=list)
    # Elsewhere: the tensors' memory, each as one dimension, and one after the other that of the copies.
    flat: list[torch.Tensor] = field(default_factory=list)
    whole: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self.containers = [place.container for place in self.places]
        self.keys = [place.key for place in self.places]

    def holds(self) -> bool:
        """Whether each place still holds the same tensor, in the same memory and form."""
        now = map(dict.get, self.containers, self.keys)
        return all(map(is_, now, self.tensors)) and self.forms.same()

    def keep(self) -> None:
        """Copy the present content."""
        for copy, source in self.memory:
            copy[:] = source
        if self.whole is not None:
            torch.cat(self.flat, out=self.whole)


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
            pack.keep()
        for single in self._singles:
            single.copy.copy_(single.live)

    @torch.no_grad()
    def rewind(self) -> None:
        """Put back what was copied: tensors, memory and content."""
        for pack in self._packs:
            rows = zip(pack.places, pack.tensors, pack.live, pack.copies, strict=True)
            for place, tensor, live, copy in rows:
                _put(place, tensor, live)
                tensor.copy_(copy)
        for single in self._singles:
            _put(single.place, single.tensor, single.live)
            shards.local(single.tensor).copy_(single.copy)
        for place in self._absent:
            place.container[place.key] = None

    def changes(self) -> dict[str, tuple[bool, int]]:
        """By name: whether a tensor's bits differ from the copy, and how many writes were counted since."""
        found = {}
        for pack in self._packs:
            rows = zip(pack.places, pack.tensors, pack.live, pack.copies, pack.versions, strict=True)
            for place, tensor, live, copy, version in rows:
                found[place.name] = (not same_bits(live, copy), tensor._version - version)
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
        packs: dict[Any, list[tuple[TensorPlace, torch.Tensor]]] = {}
        for place in self._places:
            tensor = place.tensor
            if tensor is None:
                self._absent.append(place)
            elif _plain(tensor):
                away = (tensor.dtype, tensor.device) if tensor.device.type != "cpu" else None
                packs.setdefault(away, []).append((place, tensor))
            else:
                live = shards.local(tensor).detach()
                self._singles.append(_Single(place, tensor, live, built.Forms([tensor]), live.clone()))
        self._packs = [_pack(members, away=away is not None) for away, members in packs.items()]


def _pack(members: Sequence[tuple[TensorPlace, torch.Tensor]], *, away: bool) -> _Pack:
    places, tensors = [place for place, _ in members], [tensor for _, tensor in members]
    live, forms = [tensor.detach() for tensor in tensors], built.Forms(tensors)
    if away:
        flat = [tensor.view(-1) for tensor in live]
        whole = torch.cat(flat)
        parts = torch.split(whole, [len(tensor) for tensor in flat])
        copies = [part.view(tensor.shape) for part, tensor in zip(parts, live, strict=True)]
        return _Pack(places, tensors, live, copies, forms, flat=flat, whole=whole)
    copies = [tensor.clone() for tensor in live]
    full = [(copy, own) for copy, own in zip(copies, live, strict=True) if own.nbytes]
    memory = [(digest.memory(copy), digest.memory(own)) for copy, own in full]
    return _Pack(places, tensors, live, copies, forms, memory=memory)


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it is a small plain tensor, which can be copied together with others."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    simple = type(tensor) in kinds and tensor.layout is torch.strided
    return simple and digest.shared(tensor) and tensor.nbytes <= SMALL_BYTES


def _put(place: TensorPlace, tensor: torch.Tensor, live: torch.Tensor) -> None:
    """Put the same tensor back in its place, with the memory and form that it had."""
    if place.tensor is not tensor:
        place.container[place.key] = tensor
    if not shards.is_dtensor(tensor) and not built.read_alike(tensor, live):
        tensor.data = live
