"""The step's guard: knows with which number of completed steps the state is clean, and undoes half a step.

Before the optimizer begins, the state is that of the step's start but for buffers, small objects and random
numbers, which are put back. While it runs, nothing is known. After it, the state is the next step's if all
that usually moves has moved. A run's very first step keeps a whole copy: there is no one to ask for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import modes, randomness, wrapped
from holdfast.state import tracked as state
from holdfast.state.buffers import Buffers

if TYPE_CHECKING:
    from holdfast.state.tracked import Tracked

DIRTY = -1
log = logging.getLogger("holdfast.sdk")


class Guard:
    """Watches the tracked objects through one step after the other."""

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked
        self._hooks: list[Any] = []
        self._buffers = Buffers()
        self._small: dict[str, Any] | None = {}  # None: an object did not give its state
        self._complained = False
        self._groups: list[list[dict[str, Any]]] = []
        self._random: randomness.Kept | None = None
        self._whole: tuple[list[torch.Tensor], list[torch.Tensor], list[dict[Any, Any]]] | None = None
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._usual: list[int] | None = None
        self._inside = False
        self.on_optimizer: Any = lambda code: None
        self.on_tail: Any = lambda code: None

    def arm(self) -> None:
        """(Re)read the tracked objects: before each generation's first step."""
        for hook in self._hooks:
            hook.remove()
        optimizers = self._tracked.optimizers
        self._begun, self._ended = [0] * len(optimizers), [0] * len(optimizers)
        self._hooks = []
        for index, optimizer in enumerate(optimizers):
            self._hooks.append(optimizer.register_step_pre_hook(self._before(index)))
            self._hooks.append(optimizer.register_step_post_hook(self._after(index)))
        self._buffers = Buffers(self._tracked.modules)

    def disarm(self) -> None:
        """Let go of the objects and of what was kept of them."""
        self.arm()
        self._small, self._groups, self._whole, self._random = {}, [], None, None
        self._modes = modes.Kept(self._tracked)  # of nothing
        self._inside = False

    def begin(self, *, keep_random: bool, whole: bool = False) -> None:
        """A step begins. `whole`: keep a copy of everything, until it is complete."""
        self._buffers.keep()
        self._small, self._modes = self._copy_small(), modes.Kept(self._tracked)
        optimizers = self._tracked.optimizers
        self._groups = [_options(optimizer) for optimizer in optimizers]
        self._random = randomness.Kept() if keep_random else None
        for index in range(len(optimizers)):
            self._begun[index] = self._ended[index] = 0
        if whole and self._small is not None:
            self._keep_whole()
        self._inside = True

    @property
    def left_half(self) -> bool:
        """Whether a step was begun and never completed: the loop was left by `break`."""
        return self._inside

    @property
    def moved(self) -> bool:
        """Whether an optimizer has begun its work in this step."""
        return any(self._begun)

    def end(self) -> None:
        """The step is complete."""
        self._inside = False
        self._usual = self._ended.copy()
        self._whole = None

    def settle(self, step: int) -> int:
        """The loop was left in `step` (or between steps, before it): put back what can be; the number of
        completed steps that the state is clean with, or DIRTY."""
        if not self._inside:
            return step
        self._inside = False
        if self._small is None:
            return DIRTY
        if not any(self._begun):
            self._rewind()
            return step
        if self._whole is not None:
            self._rewind_whole()
            return step
        return step + 1 if self._tail_is_clean() else DIRTY

    # ------------------------------------------------------------------ within

    def _before(self, index: int) -> Any:
        def hook(*_: Any) -> None:
            self._begun[index] += 1
            self.on_optimizer(index)

        return hook

    def _after(self, index: int) -> Any:
        def hook(*_: Any) -> None:
            self._ended[index] += 1
            self.on_tail(index)

        return hook

    def _copy_small(self) -> dict[str, Any] | None:
        """Copies of the small objects' state. One that raises costs a step's retry, not the training."""
        small = self._tracked.small
        try:
            return {name: state.copy_plain(state.capture(thing)) for name, thing in small.items()}
        except Exception as error:  # whatever a state_dict of the user's raises
            if not self._complained:
                log.warning("a tracked object does not give its state, so no step can be retried: %r", error)
            self._complained = True
            return None

    def _keep_whole(self) -> None:
        tensors = list(self._tracked.flatten().tensors)
        copies = [tensor.cpu().clone() for tensor in tensors]
        states = [dict(wrapped.local(optimizer).state) for optimizer in self._tracked.optimizers]
        self._whole = (tensors, copies, states)

    @torch.no_grad()
    def _rewind(self) -> None:
        self._buffers.rewind()
        self._modes.restore()
        assert self._small is not None
        for name, thing in self._tracked.small.items():
            state.apply(thing, state.copy_plain(self._small[name]))
        for optimizer, options in zip(self._tracked.optimizers, self._groups, strict=True):
            for group, kept in zip(optimizer.param_groups, options, strict=True):
                group.update(state.copy_plain(kept))
        if self._random is not None:
            self._random.restore()
        self._drop_gradients()

    @torch.no_grad()
    def _rewind_whole(self) -> None:
        assert self._whole is not None
        tensors, copies, states = self._whole
        for optimizer, kept in zip(self._tracked.optimizers, states, strict=True):
            wrapped.local(optimizer).state.clear()
            wrapped.local(optimizer).state.update(kept)
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(copy)
        self._rewind()

    def _drop_gradients(self) -> None:
        for module in self._tracked.modules:
            for parameter in module.parameters():
                parameter.grad = None

    def _tail_is_clean(self) -> bool:
        """All that moves in a step has moved: as many optimizer steps as usual, exactly one in all."""
        if self._begun != self._ended or self._ended != self._usual or sum(self._ended) != 1:
            return False
        covered = {
            id(parameter)
            for optimizer in self._tracked.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for module in self._tracked.modules:
            mine = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
            if mine and not mine & covered:
                return False
        self._drop_gradients()
        assert self._small is not None
        after = self._copy_small()
        if after is None:
            return False
        return not any(state.same(after[name], kept) for name, kept in self._small.items())


def _options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [
        {
            key: value if type(value) in state.ATOMS else state.copy_plain(value)
            for key, value in group.items()
            if key != "params"
        }
        for group in optimizer.param_groups
    ]
