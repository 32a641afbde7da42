"""Tell tensors from what they become, by some words spread over the memory of each.

Host memory is read without torch: one operation for each tensor would take longer than all else that a step
is watched with. What is on another device is compared together, so that the host waits for it once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from holdfast.state import digest, modes, shards

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
VALUES = 32
"""Values of each tensor that are compared."""
_WORDS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q", 16: "Q"}
"""By the size of a value in bytes, as what its memory is read; a larger value is read in parts."""

Numbered = tuple[int, torch.Tensor]
"""A tensor that is contiguous and not empty, and its number."""


class SeenValues(NamedTuple):
    """The chosen values as they were: of each tensor on the host, and of all on each device and dtype."""

    host: list[bytes]
    away: list[torch.Tensor]


class ChosenValues:
    """The chosen values of these tensors, in the memory that they have now. Those that are empty or not
    contiguous are left out."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        host: list[Numbered] = []
        away: list[Numbered] = []
        for index, tensor in enumerate(tensors):
            if tensor.numel() and tensor.is_contiguous():
                readable = tensor.device.type == "cpu" and digest.shared(tensor)
                (host if readable else away).append((index, tensor))
        self._host, self._away = HostValues(host), DeviceValues(away)

    def take(self) -> SeenValues:
        """The values now."""
        return SeenValues(self._host.take(), self._away.take())

    def changed(self, seen: SeenValues, gone: Collection[int] = ()) -> set[int]:
        """The tensors whose values have other bits now. `gone`: those whose memory is another one, or none
        any more: it is not read on the host."""
        return self._host.changed(seen.host, gone) | self._away.changed(seen.away)


class HostValues:
    """Those of tensors on the host."""

    def __init__(self, tensors: Iterable[Numbered]) -> None:
        self._indices: list[int] = []
        self._views: list[memoryview] = []
        for index, tensor in tensors:
            words = digest.memory(tensor).cast(_WORDS[tensor.element_size()])
            self._indices.append(index)
            self._views.append(words[:: max(len(words) // VALUES, 1)][:VALUES])

    def take(self) -> list[bytes]:
        """The values of each tensor now."""
        return list(map(memoryview.tobytes, self._views))

    def changed(self, seen: list[bytes], gone: Collection[int] = ()) -> set[int]:
        """The tensors whose values have other bits now. The memory of those that are `gone` is not read."""
        if gone:
            rows = zip(self._indices, self._views, seen, strict=True)
            now = [then if index in gone else view.tobytes() for index, view, then in rows]
        else:
            now = self.take()
        if now == seen:
            return set()
        places = zip(self._indices, now, seen, strict=True)
        return {index for index, value, then in places if value != then}


class DeviceValues:
    """Those of tensors on other devices."""

    def __init__(self, tensors: Iterable[Numbered]) -> None:
        self._some: dict[tuple[torch.dtype, torch.device], list[Numbered]] = {}
        for index, tensor in tensors:
            some = tensor.detach().view(-1)[:: max(tensor.numel() // VALUES, 1)][:VALUES]
            self._some.setdefault((tensor.dtype, tensor.device), []).append((index, some))

    def take(self) -> list[torch.Tensor]:
        """The values of all tensors now, for each dtype and device."""
        return [torch.cat([values for _, values in some]) for some in self._some.values()]

    def changed(self, seen: list[torch.Tensor]) -> set[int]:
        """The tensors whose values have other bits now. They are looked at one by one only if there are
        any."""
        found: set[int] = set()
        for some, now, then in zip(self._some.values(), self.take(), seen, strict=True):
            if not digest.same_bits(now, then):
                parts = torch.split(then, [len(values) for _, values in some])
                rows = zip(some, parts, strict=True)
                found |= {index for (index, values), part in rows if not digest.same_bits(values, part)}
        return found


def own_part(tensor: torch.Tensor) -> torch.Tensor | None:
    """What of a tensor can be read here: all of it, or this rank's part of a DTensor. None: it is sparse or
    nested, or of a class that says itself how it is read."""
    part = shards.local(tensor)
    plain = type(part) in _TENSORS and part.layout is torch.strided and not part.is_nested
    return part if plain else None


def loose_part(tensor: torch.Tensor, kept: Container[int]) -> torch.Tensor | None:
    """The same of a tensor that is not tracked, else None. `kept`: addresses of memory that is."""
    part = own_part(tensor)
    return None if part is None or modes.storage(part) in kept else part
