"""Gradients that count in a later step are seen at the boundary that they are carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.clean.guard import DIRTY, Guard
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """A guarded model, and a loop over steps whose body is given."""

    def __init__(self, *, optimized: bool) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        self.parameters = list(self.model.parameters())
        tracked = TrackedState()
        tracked.add("model", self.model)
        self.optimizer = torch.optim.SGD(self.parameters if optimized else [torch.zeros(1)], lr=0.1)
        if optimized:
            tracked.add("optimizer", self.optimizer)
        self.guard = Guard(tracked)
        self.guard.arm()

    def backward(self, *_: Any) -> None:
        self.model(torch.ones(4)).sum().backward()

    def run(self, steps: int, body: Callable[[int], None]) -> None:
        for step in range(steps):
            self.guard.begin(step, keep_random=False)
            body(step)
            self.guard.end()


def test_gradients_that_a_script_applies_by_hand_every_other_step() -> None:
    loop = Loop(optimized=False)
    carried = []

    def body(step: int) -> None:
        loop.backward()
        if step % 2:
            with torch.no_grad():
                for parameter in loop.parameters:
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad, alpha=0.1)
                    parameter.grad = None
        carried.append(loop.guard.carries)

    loop.run(5, body)
    assert carried == [False, True, False, True, False] and loop.guard.carries


def test_gradients_that_are_cleared_every_other_step_though_the_optimizer_steps_in_each() -> None:
    loop = Loop(optimized=True)

    def body(step: int) -> None:
        if step % 2 == 0:
            loop.optimizer.zero_grad()
        loop.backward()
        loop.optimizer.step()

    loop.run(3, body)
    loop.guard.begin(3, keep_random=False)
    assert loop.guard.settle(3) == DIRTY and loop.guard.reason


def test_they_are_kept_anew_where_a_step_ends_without_them() -> None:
    loop = Loop(optimized=True)
    carried = []

    def body(step: int) -> None:
        loop.backward()
        loop.optimizer.step()
        if step % 3 == 2:
            loop.optimizer.zero_grad()
        carried.append(loop.guard.carries)

    loop.run(7, body)
    assert carried == [False, False, True, False, True, True, False], "the second step has shown it"
    assert loop.guard.carries


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("order", ["first", "between", "behind"])
def test_gradients_that_each_step_clears_are_used_up(order: str, *, to_none: bool) -> None:
    loop = Loop(optimized=True)

    def body(step: int) -> None:
        if order == "first":
            loop.optimizer.zero_grad(set_to_none=to_none)
        elif order == "between":  # another loss has left gradients that do not count
            loop.backward()
            loop.optimizer.zero_grad(set_to_none=to_none)
        loop.backward()
        loop.backward()
        loop.optimizer.step()
        if order == "behind":
            loop.optimizer.zero_grad(set_to_none=to_none)
        assert not loop.guard.carries

    loop.run(5, body)
    assert not loop.guard.carries


def test_a_backbone_that_nobody_trains_may_have_gradients() -> None:
    loop = Loop(optimized=True)
    loop.optimizer.param_groups[0]["params"] = list(loop.model[1].parameters())

    def body(step: int) -> None:
        loop.optimizer.zero_grad()
        loop.backward()
        loop.optimizer.step()

    loop.run(4, body)
    assert loop.parameters[0].grad is not None and not loop.guard.carries
