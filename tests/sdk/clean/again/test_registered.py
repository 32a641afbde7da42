"""What a function registers again takes the place of what it registered before, and nothing else does."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import torch

from holdfast.clean.again.registered import Registered
from holdfast.state.tracked import TrackedState


class Half:
    """Hooks of one object."""

    def __init__(self, by: float) -> None:
        self.by = by

    def hook(self, _module: torch.nn.Module, _given: Any, out: torch.Tensor) -> torch.Tensor:
        return out * self.by


def doubled(_module: torch.nn.Module, _given: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 2


def added(
    _module: torch.nn.Module, _given: Any, out: torch.Tensor, by: float = 0.0, **_: Any
) -> torch.Tensor:
    return out + by


class Called:
    """A model on which a function registers hooks, each time it is called."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(self.model.weight)
        tracked = TrackedState()
        tracked.add("model", self.model)
        self.registered = Registered(tracked)

    def call(self, function: Any, *, to_its_steps: bool = True) -> float:
        self.registered.called()
        function(self.model)
        if to_its_steps:
            self.registered.steps_begin()
        return float(self.model(torch.ones(1)).detach())


def test_hooks_of_the_same_code_are_there_once() -> None:
    called = Called()
    called.model.register_forward_hook(doubled)  # before the function: it stays

    def function(model: torch.nn.Module) -> None:
        model.register_forward_hook(doubled)
        model.register_forward_hook(Half(0.5).hook)
        model.register_forward_hook(Half(0.25).hook)
        model.register_forward_hook(functools.partial(added, by=1.0), with_kwargs=False, always_call=True)

    assert [called.call(function) for _ in range(3)] == [1.5, 1.5, 1.5]
    assert len(called.model._forward_hooks) == 5 and len(called.model._forward_hooks_always_called) == 1


def test_one_that_is_not_registered_again_stays() -> None:
    called, there = Called(), list[Any]()

    def function(model: torch.nn.Module) -> None:
        if not there:
            there.append(model.register_forward_hook(doubled))

    assert [called.call(function) for _ in range(3)] == [2.0, 2.0, 2.0]


def test_what_steps_register_stays() -> None:
    called = Called()

    def function(model: torch.nn.Module) -> None:
        model.register_forward_hook(doubled)

    assert called.call(function) == 2
    called.model.register_forward_hook(doubled)
    assert called.call(function) == 4


def test_a_call_that_breaks_off_before_its_steps_counts() -> None:
    called = Called()

    def function(model: torch.nn.Module) -> None:
        model.register_forward_hook(doubled)

    called.call(function)
    assert called.call(function, to_its_steps=False) == 4, "both are there until the steps begin"
    assert called.call(function) == 2


def test_a_method_is_put_in_the_place_of_the_class_s_each_time() -> None:
    called = Called()

    def function(model: torch.nn.Module) -> None:
        inner = model.forward
        model.forward = lambda x: inner(x) * 2

    assert [called.call(function) for _ in range(3)] == [2.0, 2.0, 2.0]
    assert called.call(lambda _: None) == 2, "it is there as before, if it is not put there again"


def test_another_function_finds_what_is_there() -> None:
    called = Called()

    def function(model: torch.nn.Module) -> None:
        model.register_forward_hook(doubled)

    called.call(function)
    called.registered.forget()
    assert called.call(function) == 4, "as in a script without failures that calls it twice"


def test_a_model_that_is_tracked_no_more_is_freed() -> None:
    """A function that builds its model itself builds another one: two do not fit on a device."""
    tracked = TrackedState()
    registered = Registered(tracked)
    for _ in range(2):
        registered.called()
        model = torch.nn.Linear(1, 1)
        tracked.add("model", model)
        model.register_forward_hook(doubled)
        model.forward = functools.partial(torch.nn.Linear.forward, model)  # type: ignore[method-assign]
        registered.steps_begin()
        held = weakref.ref(model)
        tracked.objects.clear()
        del model
        registered.release()
        gc.collect()
        assert held() is None
