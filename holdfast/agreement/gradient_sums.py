"""Sum up the gradients that an optimizer is about to use, so that a check of replicas can compare them, too.

After the reduction the ranks that hold the same parameters have the same gradients. Where they differ, the
damage came with the reduction: a link, a network card, its buckets. In a checked step they are summed up
right before each optimizer's first step, tensor by tensor, on their device and without waiting for it; the
numbers travel with those of the state at the step's end (`replica_check`), when the gradients may be gone.

What is reduced later, or never, has never been equal: it accuses nobody. Zeros are equal everywhere and show
nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from holdfast.agreement import odd_replicas
from holdfast.agreement.once_equal import NUMBERS, OnceEqual
from holdfast.ipc.messages.replicas import AGREE, DIFFER
from holdfast.state import built, digest, shard_ids, shards, sums
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.agreement.differing import Details
    from holdfast.rank_state import RankState

UNITS = 2
"""Units of an optimizer: gradients that are whole, and those of shards."""
MISSED_MAX = 3
"""After so many checks in a row without an optimizer's step, its gradients count as not compared."""
PREFIX = "gradients."


@dataclass(frozen=True, slots=True)
class OddGradients:
    """Under which keys gradients differ that must be equal; and in a word how those of the step compare."""

    keys: set[int]
    word: str


@dataclass(slots=True)
class _Unit:
    """Gradients of one optimizer that the same ranks hold: indices of its parameters, and their names and
    forms."""

    key: int
    indices: list[int]
    text: str


@dataclass(slots=True)
class _Known:
    """What stays the same of an optimizer as long as its parameters do."""

    parameters: list[torch.Tensor]
    names: list[str]
    units: list[_Unit]
    single: set[int] = field(default_factory=set)  # keys that no other rank claims
    unread: bool = False  # it had gradients that cannot be read


@dataclass(slots=True)
class _Taken:
    """The sums of one unit's gradients, on their devices: `names` and `forms` of each."""

    unit: _Unit
    names: list[str]
    forms: list[str]
    values: list[torch.Tensor]
    read: list[int] = field(default_factory=list)

    def number(self) -> int:
        """All of them in one number. Waits for the devices."""
        self.read = [value for each in self.values for value in each.tolist()]
        text = self.unit.text + repr(list(zip(self.names, self.forms, strict=True)))
        return (sums.joined(self.read) + sums.text(text.encode())) % sums.MODULUS


class GradientSums:
    """One rank's gradients in the check of replicas."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._known: dict[str, _Known] = {}
        self._taken: dict[str, list[_Taken]] = {}  # in this step, by optimizer
        self._once = OnceEqual()
        self._missed: dict[str, int] = {}  # checks in a row in which this optimizer has not stepped
        self._optimizers = 0  # of the rank that tracks most

    @property
    def columns(self) -> int:
        """How many numbers `row` has."""
        return self._optimizers * UNITS * NUMBERS

    def begin(self, optimizers: int) -> None:
        """Begin a generation. `optimizers`: of the rank that tracks most."""
        self._optimizers = optimizers
        self._known, self._taken, self._missed = {}, {}, {}

    def forget(self) -> None:
        """Forget what was summed up in a step that is over, or was broken."""
        self._taken.clear()

    # ------------------------------------------------------------------ within a step

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step: sum up its gradients, unless that was done in this step."""
        tracked = self._state.tracked
        name = next((name for name, thing in tracked.objects.items() if thing is optimizer), "")
        if not name or name in self._taken or tracked.claims[name].per_rank or _capturing():
            return
        known = self._know(name, optimizer)
        self._taken[name] = [
            taken for unit in known.units if unit.key not in known.single and (taken := _sums(known, unit))
        ]

    def _know(self, name: str, optimizer: torch.optim.Optimizer) -> _Known:
        known = self._known.get(name)
        if known is None or not built.same_objects(parameters_of(optimizer), known.parameters):
            names = self._state.tracked.names()
            parameters = list(parameters_of(optimizer))
            named = [names.get(id(each), f"{name}.{index}") for index, each in enumerate(parameters)]
            places = [shards.place(each, path) for each, path in zip(parameters, named, strict=True)]
            units = []
            for whole in (True, False):
                indices = [index for index, place in enumerate(places) if (place is None) == whole]
                if indices:
                    held = [] if whole else [(named[i], places[i], _shape(parameters[i])) for i in indices]
                    units.append(self._unit(name, indices, held))
            known = self._known[name] = _Known(parameters, named, units)
        return known

    def _unit(self, name: str, indices: list[int], held: Sequence[object]) -> _Unit:
        tracked = self._state.tracked
        shard = tracked.claims[name].shard
        place = [] if shard else shard_ids.staged(tracked.at)
        text = repr(("gradients", name, held, place, shard))
        return _Unit(digest.number(text.encode()), indices, text)

    # ------------------------------------------------------------------ at the step's end

    def row(self) -> list[int]:
        """This rank's numbers. Waits for the devices."""
        every = [each for taken in self._taken.values() for each in taken]
        return self._once.row(
            [(each.unit.key, each.number(), any(each.read)) for each in every], self.columns
        )

    def learn(self, rows: Sequence[Sequence[int]]) -> OddGradients:
        """Take note of every rank's numbers. Returns where gradients that were equal differ."""
        if len(rows) == 1:
            return OddGradients(set(), "")
        seen = self._once.learn(rows)
        for known in self._known.values():
            known.single |= odd_replicas.alone(seen.found)
        for name, thing in self._state.tracked.objects.items():
            if isinstance(thing, torch.optim.Optimizer) and not self._state.tracked.claims[name].per_rank:
                self._missed[name] = 0 if name in self._taken else self._missed.get(name, 0) + 1
        if seen.damaged:
            return OddGradients(seen.damaged, DIFFER)
        compared = any(len(each) > 1 for each in seen.found.values())
        return OddGradients(set(), AGREE if compared and not self._unknown() else "")

    def details(self, keys: set[int]) -> Details:
        """The form and sum of each gradient of these keys."""
        return {
            str(taken.unit.key): {
                PREFIX + name: [form, f"{sums.unsigned(value):x}"]
                for name, form, value in zip(taken.names, taken.forms, taken.read, strict=True)
            }
            for each in self._taken.values()
            for taken in each
            if taken.unit.key in keys
        }

    def uncovered(self) -> tuple[str, ...]:
        """The gradients of this rank that are not compared, although other ranks hold the same parameters."""
        apart = self._unknown()
        missed = {name for name, count in self._missed.items() if count >= MISSED_MAX}
        return tuple(f"gradients of {name}" for name in self._missed if name in apart | missed)

    def _unknown(self) -> set[str]:
        """The optimizers with gradients of which is not known whether they are equal on other ranks."""
        return {
            name
            for name, known in self._known.items()
            if known.unread or any(unit.key in self._once.apart for unit in known.units)
        }


def _sums(known: _Known, unit: _Unit) -> _Taken | None:
    """The sums of a unit's gradients; None: it has none."""
    names, forms, tensors = [], [], []
    for index in unit.indices:
        gradient = known.parameters[index].grad
        parts = _parts(gradient) if gradient is not None else []
        known.unread = known.unread or (gradient is not None and not parts)
        for part, tensor in enumerate(parts):
            names.append(known.names[index] + (f".{part}" if part else ""))
            forms.append(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}")
            tensors.append(tensor)
    return _Taken(unit, names, forms, sums.each(tensors)) if tensors else None


def _parts(gradient: torch.Tensor) -> list[torch.Tensor]:
    """The memory of this rank's gradient; []: it cannot be read, or is only an addend of a sum."""
    if shards.is_dtensor(gradient):
        if any(placement.is_partial() for placement in gradient.placements):  # type: ignore[attr-defined]
            return []
        gradient = shards.local(gradient)
    gradient = gradient.detach()
    if type(gradient) is not torch.Tensor or gradient.is_meta:
        return []
    if gradient.layout is torch.sparse_coo:
        gradient = gradient.coalesce()
        return [gradient.values(), gradient.indices()]
    return [gradient] if gradient.layout is torch.strided else []


def _shape(parameter: torch.Tensor) -> tuple[int, ...]:
    return tuple(shards.local(parameter).shape)


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
