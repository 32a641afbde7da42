"""Notice what code changes outside of steps: callbacks after a step, which may change no tracked state, and
what an elastic function does before its steps and between two loops over them.

A callback may be broken off anywhere, and runs again; what comes before the steps runs in each generation,
over the state that was restored. Weights that a callback swaps for an evaluation and puts back are unchanged
at its end, but not in the middle. So when such code begins, it is noted what tells a change: the tensors, the
counts of their writes, and some of their values, which a write through `.data` changes without being counted.
Values on a device cost a wait for it: after a callback they are compared in the first times and in every
hundredth.

What is small is put back if the code is broken off or comes before the steps: modes, options, small
objects. What runs between two loops comes before the steps if both were over when the function was called
again: the state that was restored has it in it. Else it counts (`ended`)."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any

from holdfast.clean import habits, optimizer_states
from holdfast.clean.putting_back import Options, options_of, put_options, put_small
from holdfast.clean.samples import ChosenValues, SeenValues
from holdfast.state import built, digest, shards
from holdfast.state.modes import ModesAtStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from holdfast.clean.unowned import Unowned

_FIRST, _EVERY = 3, 100
_address = methodcaller("data_ptr")


class Beside:
    """The tracked state as it was when such code began. `copy_small`: gives the state of small objects."""

    def __init__(self, unowned: Unowned, copy_small: Callable[[], dict[str, Any] | None]) -> None:
        self._unowned, self._copy_small = unowned, copy_small
        self._optimizers: Sequence[torch.optim.Optimizer] = ()
        self._things: Mapping[str, Any] = {}
        self._states = False  # those of optimizers are looked at, too
        self._tensors: list[torch.Tensor] = []
        self._known: list[torch.Tensor] = []  # those of the time before: mostly the same
        self._sharded = False  # some of them are DTensors
        self._away = False  # some are on a device
        self._addresses: list[int] = []
        self._versions: list[int] = []
        self._samples = ChosenValues()
        self._seen: SeenValues | None = None
        self._modes = ModesAtStart()
        self._options = Options([], [])
        self._small: dict[str, Any] | None = None
        self._count = 0
        self.watching = False  # such code runs, or was broken off

    def arm(self, optimizers: Sequence[torch.optim.Optimizer], things: Mapping[str, Any]) -> None:
        """A generation begins with these optimizers and small objects."""
        self._optimizers, self._things = optimizers, things
        self._known, self._addresses, self._samples = [], [], ChosenValues()
        self.unwatch()

    def watch(self, *, states: bool = False) -> None:
        """Such code begins. `states`: it comes before the steps, and may not change those of optimizers
        either. It may change buffers, as plain DDP does, which gives all ranks those of rank 0: they are put
        back. There a write that leaves the same values is no change."""
        self._count += 1
        self.watching, self._states = True, states
        self._tensors = self._all()
        self._place()
        self._versions, self._seen = list(map(digest.writes, self._tensors)), self._samples.take()
        self._modes = ModesAtStart(self._unowned.parts, self._unowned.parameters, self._optimizers)
        self._options, self._small = options_of(self._optimizers), self._copy_small()
        if states:
            self._unowned.keep()

    def _place(self) -> None:
        """Find the tensors' memory, if it is not where it was: for a DTensor that of its local part."""
        if not built.same_objects(self._tensors, self._known):
            self._known, self._sharded = self._tensors, any(map(shards.is_dtensor, self._tensors))
            self._addresses = []
        live = list(map(shards.local, self._tensors)) if self._sharded else self._tensors
        addresses = list(map(_address, live))
        if addresses != self._addresses:
            self._samples, self._addresses = ChosenValues([each.detach() for each in live]), addresses
            self._away = any(each.device.type != "cpu" for each in live)

    def unwatch(self) -> None:
        """It has ended."""
        self.watching, self._tensors, self._versions, self._seen = False, [], [], None
        self._modes, self._options, self._small = ModesAtStart(), Options([], []), None

    def changed(self) -> str:
        """The name of tracked state that has changed since `watch`; "" if none has, as far as is cheap to
        see."""
        after = self._copy_small()
        for name, kept in (self._small or {}).items():
            if after is None or any(habits.moved(kept, after.get(name), name).values()):
                return name
        learns = self._count <= _FIRST or self._count % _EVERY == 0
        return self._moved(valued=learns or not self._away)

    def changed_values(self) -> str:
        """It has ended: the name of a tensor that has other values now; "": none has."""
        moved = self._moved(counted=False)
        self.unwatch()
        return moved

    def overwritten(self) -> str:
        """It has ended before the steps: put back what is small. Returns the name of a tensor that has other
        values now; "": none has."""
        moved = self._moved(counted=False)
        self._put_back()
        return moved

    def values_moved(self) -> str:
        """The name of a tensor that has other values now; "": none has."""
        return self._moved(counted=False)

    def ended(self) -> str:
        """It has ended, and what it has changed counts. Returns what that is, in words; "": nothing is
        seen."""
        if not self.watching:
            return ""
        after = self._copy_small() or {}
        moved = (name for name, kept in (self._small or {}).items() if _differ(kept, after.get(name)))
        found = next(moved, "") or self._moved(counted=False) or self._unowned.moved()
        if not found and _differ(self._options.values, options_of(self._optimizers).values):
            found = "the options of an optimizer"
        if not found and not self._modes.same():
            found = "which modules train, or which parameters"
        self.unwatch()
        return found

    def settle(self) -> str:
        """If it was broken off, put back what is small. Returns why that is not enough; "": it is."""
        if not self.watching:
            return ""
        if moved := self._moved(counted=not self._states):
            self.unwatch()
            return f"what runs between the steps was broken off while it had changed {moved}"
        self._put_back()
        return ""

    def _put_back(self) -> None:
        if self._states:
            self._unowned.rewind()
        self._modes.restore()
        put_small(self._things, self._small or {})
        put_options(self._optimizers, self._options)
        self.unwatch()

    def _moved(self, *, counted: bool = True, valued: bool = True) -> str:
        """The name of a tensor that is another one, was written to (`counted`), or has other values
        (`valued`)."""
        now = self._all()
        if not built.same_objects(now, self._tensors):
            known = set(map(id, self._tensors))
            return self._unowned.name(next((each for each in now if id(each) not in known), self._tensors[0]))
        versions = list(map(digest.writes, now)) if counted else self._versions
        if versions != self._versions:
            kept = zip(now, versions, self._versions, strict=True)
            return self._unowned.name(next(tensor for tensor, version, then in kept if version != then))
        moved = self._samples.changed(self._seen) if valued and self._seen is not None else ()
        return self._unowned.name(self._tensors[min(moved)]) if moved else ""

    def _all(self) -> list[torch.Tensor]:
        if self._states:
            return [*self._unowned.parameters, *optimizer_states.tensors(self._optimizers)]
        held = [each for part in self._unowned.parts for each in (part._parameters, part._buffers) if each]
        return [tensor for each in held for tensor in each.values() if tensor is not None]


def _differ(before: Any, after: Any) -> bool:
    return any(habits.moved(before, after, "").values())
