"""Keep tensors that no optimizer owns as they were at a step's start.

These are buffers, teachers, momentum encoders and frozen weights. Small buffers are copied at every step. Any
other tensor is assumed not to move until it is seen to. Its digest is taken once and proves, at a break, that
it has not moved, whatever might have written to it (`.data`, numpy, another library: a version counter counts
none of these). A tensor that was seen to move is copied at every step from then on, if there is room. If it
is too large, a broken step cannot be undone; that is logged once, by name."""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

from holdfast.clean import optimizer_states
from holdfast.clean.copies import SMALL_BYTES, TensorCopies, TensorPlace
from holdfast.state import built, digest, shards
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from holdfast.state.tracked import TrackedState

ROOM_BYTES = 64 << 20
"""The largest total size of the tensors that are copied because they were seen to move; or the size of all
weights that optimizers own, if that is larger."""

_LEARNED_FIRST, _LEARNED_EVERY = 3, 100
"""Everything is compared at the start of each of the first steps, and of every hundredth after them."""
log = logging.getLogger("holdfast.sdk")


@dataclass(slots=True)
class _Still:
    """A tensor that has not been seen to move."""

    place: TensorPlace
    tensor: torch.Tensor
    version: int
    bits: int

    def unwritten(self) -> bool:
        """Whether its module still holds it, or the whole of a shard, and no write to it was counted."""
        held = self.place.tensor
        there = held is self.tensor or _gathered(held, self.tensor)
        return there and self.tensor._version == self.version

    def same(self) -> bool:
        """Whether its bits are unchanged."""
        return self.unwritten() and digest.whole(shards.local(self.tensor)) == self.bits


class Unowned:
    """The tensors of tracked modules that no tracked optimizer owns."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        self._movers: set[str] = set()  # names of tensors that were seen to move
        self._strays: set[int] = set()  # ids of owned parameters that move outside of their optimizer
        self._kept_strays: set[int] = set()  # those of them that are copied at each step
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}
        self._stills: list[_Still] = []
        self._too_large: dict[str, int] = {}  # bytes, by name
        self._logged: set[str] = set()  # names that were logged as too large
        self._entries = built.Entries((), ())
        # The tracked modules with all below them, and their parameters, at the step's start.
        self.parts: list[torch.nn.Module] = []
        self.parameters: list[torch.nn.Parameter] = []
        self._submodules = built.Submodules(())
        self._owned: list[
            tuple[TensorPlace, torch.Tensor]
        ] = []  # the places of parameters that optimizers own
        self._by_hand: list[TensorPlace] = []
        self._stale = True  # the plan must be made again
        self._copies = TensorCopies()
        self._begun = 0

    def arm(self) -> None:
        """Read the tracked objects again, before the first step of a generation."""
        self._plan()

    def begin(self, *, counted: bool = False) -> None:
        """Begin a step: see what has moved since the last one, and copy what may move.

        `counted`: also count writes to the copied tensors."""
        self._begun += 1
        built_anew = self._stale or not self._entries.same()
        learned = self._learn(all_of_them=self._begun <= _LEARNED_FIRST or self._begun % _LEARNED_EVERY == 0)
        if built_anew or learned:
            self._plan()
        self._copies.keep()
        if counted:
            self._copies.note_versions()

    def keep(self) -> None:
        """Copy what may move, as at a step's start."""
        self._copies.keep()
        self._copies.note_versions()

    def moved(self) -> str:
        """The name of a tensor that has moved since `keep`, or of one that is too large to tell; "": none."""
        changed = (name for name, (moved, _) in self._copies.changes().items() if moved)
        written = (still.place.name for still in self._stills if not still.unwritten())
        return next(chain(changed, written, self._too_large), "")

    def rewind(self) -> None:
        """Put back what was copied."""
        self._copies.rewind()

    def look_anew(self) -> None:
        """Make the plan again at the next step: optimizers own other parameters now."""
        self._stale = True

    def add_stray(self, parameter: torch.Tensor) -> None:
        """Keep this parameter as if no optimizer owned it, from the next step on."""
        if id(parameter) not in self._strays:
            self._strays.add(id(parameter))
            self._stale = True

    def keeps_stray(self, parameter: torch.Tensor) -> bool:
        """Whether an owned parameter that moves by itself was copied at this step's start."""
        return id(parameter) in self._kept_strays

    def name(self, tensor: torch.Tensor) -> str:
        """The name of this parameter or buffer in a tracked module; or the optimizer whose state it is in."""
        for root, module in _named_modules(self._tracked):
            for key, found in (*module._parameters.items(), *module._buffers.items()):
                if found is tensor:
                    return f"{root}.{key}"
        for name, thing in self._tracked.objects.items():
            if isinstance(thing, torch.optim.Optimizer):
                if any(each is tensor for each in optimizer_states.tensors([thing])):
                    return f"the state of {name}"
        return f"a tensor of shape {tuple(tensor.shape)}"

    def stepped_by_hand(self) -> Iterator[torch.Tensor]:
        """The parameters that the script may update by hand; their gradients count until they are cleared.

        Those are the parameters that moved without an optimizer, or all of them if the script tracks no
        optimizer."""
        return (place.tensor for place in self._by_hand if place.tensor is not None)

    def put_back(self) -> str:
        """Undo what a broken step did to these tensors. Returns "", or the name of one that cannot be
        undone."""
        self._submodules.put_back()
        if self._too_large:
            return next(iter(self._too_large))
        for place, tensor in self._owned:
            if place.tensor is not tensor and not _gathered(place.tensor, tensor):
                return place.name
        for still in self._stills:
            if not still.same():
                self._movers.add(still.place.name)
                self._stale = True
                return still.place.name
        self._copies.rewind()
        return ""

    def behaviour(self) -> dict[str, Hashable]:
        """How each tensor has moved since the step's start, for `StepPattern`. One that is too large
        always differs."""
        still = {still.place.name: not still.unwritten() for still in self._stills}
        kept = {**still, **self._copies.changes(), **{name: object() for name in self._too_large}}
        return {**kept, "the submodules": not self._entries.same()}

    # ------------------------------------------------------------------ the plan

    def _plan(self) -> None:
        """Decide which tensors are copied at each step and which are watched by their digests."""
        self._stills, self._too_large, self._stale = [], {}, False
        self._known = {key: known for key, known in self._known.items() if known[0]() is not None}
        small: list[TensorPlace] = []
        moving: list[TensorPlace] = []
        for place in self._places():
            tensor = place.tensor
            if tensor is None or (_is_buffer(tensor) and tensor.nbytes <= SMALL_BYTES):
                small.append(place)
            elif place.name in self._movers or id(tensor) in self._strays:
                moving.append(place)
            else:
                self._stills.append(self._still(place, tensor))
        own = moving if self._tracked.optimizers else [*(still.place for still in self._stills), *moving]
        self._by_hand = [place for place in own if id(place.tensor) not in self._strays]
        kept = self._within_room(moving)
        self._kept_strays = {id(place.tensor) for place in kept} & self._strays
        self._copies = TensorCopies([*small, *kept])

    def _places(self) -> Iterator[TensorPlace]:
        """The place of each tensor that no optimizer owns, each tensor once."""
        owned = {id(parameter) for parameter in owned_parameters(self._tracked)} - self._strays
        modules, seen = list(_named_modules(self._tracked)), set()
        self.parts = [module for _, module in modules]
        own = chain.from_iterable(module._parameters.values() for module in self.parts)
        self.parameters = [parameter for parameter in own if parameter is not None]
        self._entries = built.entries(self.parts, buffers=False)
        self._submodules, self._owned = built.Submodules(self.parts), []
        for root, module in modules:
            for container in (module._buffers, module._parameters):
                for key, tensor in container.items():
                    if tensor is None and container is module._parameters:
                        continue
                    place = TensorPlace(container, key, f"{root}.{key}")  # type: ignore[arg-type]
                    if tensor is not None and id(tensor) in owned:
                        self._owned.append((place, tensor))
                    elif tensor is None or id(tensor) not in seen:
                        seen.add(id(tensor))
                        yield place

    def _still(self, place: TensorPlace, tensor: torch.Tensor) -> _Still:
        known = self._known.get(id(tensor))
        version = tensor._version
        if known is None or known[0]() is not tensor or known[1] != version:
            known = (weakref.ref(tensor), version, digest.whole(shards.local(tensor)))
            self._known[id(tensor)] = known
        return _Still(place, tensor, version, known[2])

    def _within_room(self, moving: list[TensorPlace]) -> list[TensorPlace]:
        owned_bytes = sum(shards.local(p).nbytes for p in owned_parameters(self._tracked))
        room, taken = max(ROOM_BYTES, owned_bytes), []
        for place in moving:
            nbytes = shards.local(place.tensor).nbytes if place.tensor is not None else 0
            if nbytes <= room:
                room -= nbytes
                taken.append(place)
            else:
                self._too_large[place.name] = nbytes
                self._log_too_large(place.name, nbytes)
        return taken

    def _log_too_large(self, name: str, nbytes: int) -> None:
        if name in self._logged:
            return
        self._logged.add(name)
        log.warning(
            "%s changes in a step, no optimizer owns it, and with %d bytes it is too large to be copied at "
            "every step: when a step is interrupted, training goes back to the newest snapshot",
            name,
            nbytes,
        )

    def _learn(self, *, all_of_them: bool) -> bool:
        """Copy from now on whatever has moved since the last look. Returns whether something has.

        A version that went up proves a move cheaply. One that did not proves nothing, so now and then all
        bits are compared."""
        if all_of_them:
            moved = [still.place.name for still in self._stills if not still.same()]
        else:
            moved = [still.place.name for still in self._stills if not still.unwritten()]
        self._movers.update(moved)
        return bool(moved)


def owned_parameters(tracked: TrackedState) -> Iterator[torch.Tensor]:
    """The parameters that tracked optimizers step."""
    return chain.from_iterable(map(parameters_of, tracked.optimizers))


def _named_modules(tracked: TrackedState) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.nn.Module):
            for path, module in thing.named_modules():
                yield f"{name}.{path}" if path else name, module


def _gathered(now: torch.Tensor | None, then: torch.Tensor) -> bool:
    """Whether one is a shard and the other the whole: a module of FSDP2 holds either at different times."""
    return shards.is_dtensor(now) != shards.is_dtensor(then) and now is not None


def _is_buffer(tensor: torch.Tensor) -> bool:
    return not isinstance(tensor, torch.nn.Parameter)
