"""Know with how many completed steps the state is clean, and undo half a step.

A step is complete when its body has ended. If it breaks earlier, it is undone where that is provably exact:
no optimizer has begun, no parameter has moved outside of an optimizer, and each tensor that no optimizer owns
is unchanged or was copied at the step's start. Then buffers, small objects, options and random numbers are
put back. In all other cases the state is DIRTY and must come from elsewhere.

Gradients that a step leaves for the next one (an optimizer that steps every k-th time) belong to no state
that is kept. So while they are carried nothing new is kept, and a break goes back to the last boundary
without them.

If the script allows the tail of a step to be cut, a broken step counts if everything has moved that moves in
whole steps. The very first step of a run keeps a copy of everything, because no other rank or snapshot has
that state."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean import gradients, habits
from holdfast.clean.beside import Beside
from holdfast.clean.habits import StepPattern
from holdfast.clean.optimizer_states import OptimizerStates
from holdfast.clean.owned import Owned
from holdfast.clean.putting_back import Options, copy_plain, options_of, put_options, put_small
from holdfast.clean.unowned import Unowned, owned_parameters
from holdfast.state import built, modes, randomness, shards, wrapped
from holdfast.state import tracked as state
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from holdfast.state.tracked import TrackedState

DIRTY = -1
"""The answer of `settle` if the state is not clean."""
log = logging.getLogger("holdfast.sdk")


class Guard:
    """Watches the tracked objects through each step."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        # The tracked optimizers and small objects, since `arm`.
        self._optimizers: list[torch.optim.Optimizer] = []
        self._things: dict[str, Any] = {}
        self._hooks: list[Any] = []
        self._unowned = Unowned(tracked)
        self.sharded = shards.ShardedModules()  # the tracked ones, since `arm`
        self._owned = Owned()
        self._habits = StepPattern()
        self._uncleared = gradients.Uncleared()
        self._standing = gradients.Standing()
        self._graded: list[torch.Tensor] = []  # parameters with a gradient at the anchor that counts as zeros
        tracked.graded = self._standing.of
        # State of the small objects at the anchor; None: one did not give its state.
        self._small: dict[str, Any] | None = {}
        self._complained = False
        self._modes = modes.ModesAtStart()
        self._groups = Options([], [])
        self._random: randomness.GeneratorsAtStart | None = None
        self._whole: tuple[list[torch.Tensor], list[torch.Tensor], list[dict[Any, Any]]] | None = None
        self._states = OptimizerStates()
        self.beside = Beside(self._unowned, self._copy_small)
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._anchor = 0  # the step at whose start everything was kept
        self._between = ""  # what was changed right before that, after a loop over steps: no boundary has it
        self._advanced = False  # an optimizer has stepped since then, in a complete step
        self._inside = False
        self.entered = False  # a step has begun in this generation
        self.carries = False  # gradients cross the newest boundary
        self._skippable = False
        self.reason = ""  # why the newest broken step could not be undone; "": it could
        # Called before an optimizer begins in a step; what it raises leaves the state as it was.
        self.on_begun: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None
        # Called before tracked tensors are written, by an optimizer or to undo a step.
        self.before_writing: Callable[[], None] = lambda: None
        self.on_optimizer: Any = lambda code: None
        self.on_tail: Any = lambda code: None

    def arm(self) -> None:
        """Read the tracked objects again, before the first step of a generation.

        A generation begins without carried gradients: those that a broken step has left are dropped."""
        self.before_writing()
        self.sharded = shards.ShardedModules(self._tracked.modules)
        self.sharded.hold()
        gradients.drop(self._tracked.modules, but=self._standing.of(self._parameters()))
        for hook in self._hooks:
            hook.remove()
        self._optimizers, self._things = self._tracked.optimizers, self._tracked.small
        self._begun, self._ended = [0] * len(self._optimizers), [0] * len(self._optimizers)
        self._hooks = []
        for index, optimizer in enumerate(self._optimizers):
            self._hooks.append(optimizer.register_step_pre_hook(self._before(index)))
            self._hooks.append(optimizer.register_step_post_hook(self._after(index)))
        self._states.arm(self._optimizers)
        self._unowned.arm()
        self._owned.arm(list(owned_parameters(self._tracked)))
        self._habits.forget()
        self._whole = None
        self._uncleared.arm()
        self.beside.arm(self._optimizers, self._things)
        self._inside = self.carries = self._advanced = self.entered = False

    def disarm(self) -> None:
        """Release the objects and what was kept of them."""
        self.arm()
        self._graded = []
        self._small, self._groups, self._random = {}, Options([], []), None
        self._modes, self.beside = modes.ModesAtStart(), Beside(self._unowned, self._copy_small)

    def begin(self, step: int, *, keep_random: bool, whole: bool = False) -> None:
        """Begin a step. `whole`: keep a copy of everything until it is complete."""
        self.sharded.hold()
        owned = chain.from_iterable(map(parameters_of, self._optimizers))
        if not built.same_objects(owned, self._owned.parameters):
            self._owned.arm(list(owned_parameters(self._tracked)))
            self._unowned.look_anew()
        changed = self.beside.ended()
        if not self.carries:
            self._between = changed
            self._keep(step, keep_random=keep_random)
            self._whole = None
            if whole and self._small is not None:
                self._keep_whole()
        self._owned.begin()
        self._uncleared.begin()
        for index in range(len(self._begun)):
            self._begun[index] = self._ended[index] = 0
        self._inside = self.entered = True

    @property
    def skippable(self) -> bool:
        """Whether the script allows the tail of a step to be cut."""
        return self._skippable

    @skippable.setter
    def skippable(self, skippable: bool) -> None:
        if skippable and not self._skippable:
            self._owned.learn_tails()
        self._skippable = skippable

    @property
    def anchor(self) -> int:
        """The step that a broken step goes back to: at its start everything was kept."""
        return self._anchor

    @property
    def left_half(self) -> bool:
        """Whether a step has begun and is not complete: it runs, or the loop was left in it."""
        return self._inside

    @property
    def stepping(self) -> bool:
        """Whether an optimizer is stepping now."""
        return self._begun != self._ended

    @property
    def moved(self) -> bool:
        """Whether an optimizer has begun to step in this step."""
        return any(self._begun)

    def end(self) -> None:
        """Complete the step: learn what moved in it, and whether gradients are carried."""
        if self.skippable:
            behaviour = self._behaviour()
            if behaviour is not None:
                self._habits.observe(behaviour)
        strays = self._owned.end(optimized=self.moved)
        for stray in strays:
            self._unowned.add_stray(stray)
        self._inside = False
        by_hand = gradients.left(self._unowned.stepped_by_hand())
        self.carries = by_hand or gradients.carried(self._optimizers, self._ended, self._uncleared)
        if self.carries:
            self._advanced = self._advanced or self.moved or bool(strays)
        else:
            self._whole, self._advanced = None, False

    def versions(self) -> list[int]:
        """The count of noted writes to each parameter of a tracked optimizer."""
        return self._owned.versions()

    def settle(self, step: int) -> int:
        """Put back what can be after the loop was left in `step` (or between steps, before it).

        Returns the number of completed steps that the state is clean with, or DIRTY."""
        self.before_writing()
        self.reason = self.beside.settle()
        if not (self.reason or self._inside or self.carries):
            return step
        inside, self._inside = self._inside, False
        if self.reason:
            self.carries = False
            return DIRTY
        found = self._settle(step, inside)
        self.carries = False
        return found

    # ------------------------------------------------------------------ within

    def _parameters(self) -> Iterator[torch.Tensor]:
        return chain.from_iterable(module.parameters() for module in self._tracked.modules)

    def _settle(self, step: int, inside: bool) -> int:
        if self._small is None:
            self.reason = "state_dict of a tracked object fails"
        elif self._whole is not None:
            self._rewind_whole()
            return self._anchor
        elif self._between and not (self.moved or self._advanced):
            self.reason = (
                f"between two loops over steps, {self._between} had changed, which will happen again"
            )
        elif not (self.moved or self._advanced):
            self.reason = (
                (self._strays() if inside else "") or self._state_moved() or self._unowned.put_back()
            )
            if not self.reason:
                self._rewind()
                return self._anchor
            self.reason = f"{self.reason} has changed, and it is not copied at each step"
        elif inside and self.skippable:
            self.reason = self._unfinished()
            if not self.reason:
                gradients.drop(self._tracked.modules, but=self._standing.of(self._parameters()))
                return step + 1
        else:
            self.reason = "an optimizer had started its step and the body of the step had not ended"
        return DIRTY

    def _before(self, index: int) -> Any:
        def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.before_writing()
            if self._inside:
                self.on_begun(optimizer)
            if self._inside and not self.moved:
                self._strays()
            if self._inside and not self._begun[index]:
                self._uncleared.before(index, optimizer)
            self._begun[index] += 1
            self.on_optimizer(index)

        return hook

    def _after(self, index: int) -> Any:
        def hook(*_: Any) -> None:
            self._ended[index] += 1
            self._owned.end_of_optimizers(decides=self.skippable)
            self.on_tail(index)

        return hook

    def _state_moved(self) -> str:
        """The name of an optimizer whose state has changed before its step; "" if there is none."""
        moved = self._states.changed()
        names = (name for name, thing in self._tracked.objects.items() if thing is moved)
        return f"the state of {next(names, 'an optimizer')}" if moved is not None else ""

    def _strays(self) -> str:
        """The name of a parameter that moved before its optimizer began and was not copied; "" if there is
        none.

        Such parameters are copied at each step from now on."""
        strays = [stray for stray in self._owned.moved() if not self._unowned.keeps_stray(stray)]
        for stray in strays:
            self._unowned.add_stray(stray)
        return self._unowned.name(strays[0]) if strays else ""

    # ------------------------------------------------------------------ what is kept

    def _keep(self, step: int, *, keep_random: bool) -> None:
        self._anchor = step
        self._graded = self._standing.look(self._unowned.parameters)
        self._states.begin()
        self._unowned.begin(counted=self.skippable)
        self._small = self._copy_small()
        self._modes = modes.ModesAtStart(self._unowned.parts, self._unowned.parameters, self._optimizers)
        self._groups = options_of(self._optimizers)
        self._random = randomness.GeneratorsAtStart() if keep_random else None

    def _copy_small(self) -> dict[str, Any] | None:
        """Copies of the small objects' state. None if one raises: that costs retries, not the training."""
        try:
            return {name: copy_plain(state.capture(thing)) for name, thing in self._things.items()}
        except Exception as error:  # a user's state_dict may raise anything
            if not self._complained:
                log.warning("state_dict of a tracked object fails, so no step can be retried: %r", error)
            self._complained = True
            return None

    def _keep_whole(self) -> None:
        tensors = list(self._tracked.flatten().tensors)
        copies = [tensor.cpu().clone() for tensor in tensors]
        states = [_held(wrapped.local(optimizer).state) for optimizer in self._optimizers]
        self._whole = (tensors, copies, states)

    @torch.no_grad()
    def _rewind(self) -> None:
        self._modes.restore()
        assert self._small is not None
        put_small(self._things, self._small)
        put_options(self._optimizers, self._groups)
        if self._random is not None:
            self._random.restore()
        gradients.drop(self._tracked.modules, but=self._graded)

    @torch.no_grad()
    def _rewind_whole(self) -> None:
        assert self._whole is not None
        tensors, copies, states = self._whole
        for optimizer, kept in zip(self._optimizers, states, strict=True):
            wrapped.local(optimizer).state.clear()
            wrapped.local(optimizer).state.update(kept)
        self._unowned.put_back()
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(copy)
        self._rewind()

    # ------------------------------------------------------------------ a tail that was cut

    def _behaviour(self) -> dict[str, Hashable] | None:
        """How each part of the state has moved in this step so far; None if a state cannot be read."""
        after = self._copy_small()
        if after is None or self._small is None:
            return None
        found: dict[str, Hashable] = {f"optimizer {i}": count for i, count in enumerate(self._ended)}
        for name, kept in self._small.items():
            found |= habits.moved(kept, after.get(name), name)
        return found | self._unowned.behaviour()

    def _unfinished(self) -> str:
        """Why a step in which an optimizer has stepped may not be whole; "" if it is."""
        if self._begun != self._ended:
            return "an optimizer was interrupted in its step"
        if self.carries or self._advanced:
            return "gradients of earlier steps were carried over into this one"
        if self._owned.tail_moves:
            return "parameters change after their optimizer's step"
        behaviour = self._behaviour()
        if behaviour is None:
            return "state_dict of an object fails"
        return self._habits.unusual(behaviour, self._things)


def _held(kept: Any) -> Any:
    """An optimizer's state with the same tensors, and copies of what is none."""
    if not isinstance(kept, dict):
        return kept if isinstance(kept, torch.Tensor) else copy_plain(kept)
    return {key: _held(value) for key, value in kept.items()}
