"""Let what a function registers again take the place of what it registered before.

An elastic function is called again after a failure, in a process that lives, and finds the objects that have
lasted: with the hooks that it registered on them before its steps, and with the methods that it put in the
place of theirs. Registered once more, a hook that halves gradients would quarter them, and only in the
processes that have lived. So at its first step a hook that was registered again by the same code replaces the
older one; one that was not (a script may look whether it is there) stays. A method is taken away before the
function is called again, and comes back if the function does not put another one there."""

from __future__ import annotations

import functools
from itertools import chain
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from holdfast.state.tracked import TrackedState

_OF_MODULES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_OF_STATES = ("_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_ALL: tuple[dict[int, Any], ...] = (
    modules._global_forward_pre_hooks,
    modules._global_forward_hooks,
    modules._global_backward_pre_hooks,
    modules._global_backward_hooks,
    optimizers._global_optimizer_pre_hooks,
    optimizers._global_optimizer_post_hooks,
)
_BESIDE = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
"""Where a module notes more about some of its hooks, under the same keys."""
_OURS = "holdfast."


class _Hook(NamedTuple):
    hooks: dict[int, Any]
    key: int
    holder: Any


class _Method(NamedTuple):
    holder: Any
    name: str
    value: Any


class Registered:
    """The hooks and methods that the function has put on tracked objects before its steps."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        self._before: set[int] = set()  # the keys of hooks when it was called: torch gives each key once
        self._hooks: list[_Hook] = []
        self._own: dict[tuple[int, str], Any] = {}  # methods that objects had of their own when it was called
        self._methods: list[_Method] = []
        self._within = False  # it has been called, and its steps have not begun

    def forget(self) -> None:
        """Another function is called."""
        self._hooks, self._methods, self._within = [], [], False

    def called(self) -> None:
        """The function is called, perhaps again."""
        if self._within:  # it was broken off before its steps
            self.steps_begin()
        for method in self._methods:
            vars(method.holder).pop(method.name, None)
        self._own = {(id(each.holder), each.name): each.value for each in self._put()}
        self._before = {each.key for each in self._found()}
        self._within = True

    def steps_begin(self) -> None:
        """Its steps begin."""
        if not self._within:
            return
        self._within = False
        new = [each for each in self._found() if each.key not in self._before]
        for each in new:
            _take_older(self._hooks, each)
        self._hooks = [*(each for each in self._hooks if each.key in each.hooks), *new]
        put = [each for each in self._put() if self._own.get((id(each.holder), each.name)) is not each.value]
        known = {(id(each.holder), each.name) for each in put}
        for method in self._methods:
            if (id(method.holder), method.name) not in known:
                vars(method.holder).setdefault(method.name, method.value)
                put.append(method)
        self._methods = put

    def release(self) -> None:
        """Release what is tracked no more: models that the function builds anew each time must be freed."""
        places = {id(hooks) for _, hooks in self._places()}
        self._hooks = [each for each in self._hooks if id(each.hooks) in places]
        holders = set(map(id, self._holders()))
        self._methods = [each for each in self._methods if id(each.holder) in holders]

    def _found(self) -> Iterator[_Hook]:
        for holder, hooks in self._places():
            for key, hook in list(hooks.items()) if hooks else ():
                if not str(type(hook).__module__).startswith(_OURS) and not _is_ours(hook):
                    yield _Hook(hooks, key, holder)

    def _places(self) -> Iterator[tuple[Any, Any]]:
        yield from ((None, hooks) for hooks in _OF_ALL)
        for part in self._parts():
            yield from ((part, getattr(part, name, None)) for name in (*_OF_MODULES, *_OF_STATES))
            for parameter in part._parameters.values():
                yield from ((parameter, getattr(parameter, name, None)) for name in _OF_TENSORS)
        for optimizer in self._tracked.optimizers:
            yield from ((optimizer, getattr(optimizer, name, None)) for name in _OF_OPTIMIZERS)

    def _holders(self) -> Iterator[Any]:
        return chain(self._parts(), self._tracked.optimizers)

    def _parts(self) -> Iterator[torch.nn.Module]:
        return (part for module in self._tracked.modules for part in module.modules())

    def _put(self) -> Iterator[_Method]:
        """Methods that objects have of their own, in the place of those of their classes."""
        for holder in self._holders():
            for name, value in list(vars(holder).items()):
                if callable(value) and callable(getattr(type(holder), name, None)):
                    yield _Method(holder, name, value)


def _take_older(older: list[_Hook], newer: _Hook) -> None:
    """Take away the first one of these that is at the same place and of the same code."""
    code = _code(newer.hooks[newer.key])
    for each in older:
        if each.hooks is newer.hooks and each.key in each.hooks and _code(each.hooks[each.key]) == code:
            del each.hooks[each.key]
            for name in _BESIDE:
                getattr(each.holder, name, {}).pop(each.key, None)
            return


def _is_ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(_OURS)


def _code(hook: Any) -> Any:
    """What tells a hook from others: its code."""
    if isinstance(hook, functools.partial):
        return functools.partial, _code(hook.func)
    if isinstance(hook, MethodType):
        return type(hook.__self__), _code(hook.__func__)
    return hook.__code__ if isinstance(hook, FunctionType) else (type(hook), getattr(hook, "__name__", ""))
