"""What moves after the last optimizer's step is looked at where that decides whether a broken step counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from holdfast.clean.guard import DIRTY, Guard
from holdfast.clean.owned import Owned
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """A guarded model with an optimizer, and whole and broken steps that end with a given tail."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        tracked = TrackedState()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        tracked.add("model", self.model)
        tracked.add("optimizer", self.optimizer)
        self.guard = Guard(tracked)
        self.guard.arm()
        self.step = 0

    def _begin(self) -> None:
        self.guard.begin(self.step, keep_random=False)
        self.optimizer.zero_grad()
        self.model(torch.ones(4)).sum().backward()
        self.optimizer.step()

    def run(self, steps: int, tail: Callable[[torch.nn.Linear], object]) -> None:
        for _ in range(steps):
            self._begin()
            tail(self.model)
            self.guard.end()
            self.step += 1

    def break_off(self) -> int:
        """Break a step off after its optimizer. Returns with how many complete steps the state is clean."""
        self._begin()
        return self.guard.settle(self.step)


def counted(model: torch.nn.Linear) -> None:
    with torch.no_grad():
        model.weight.clamp_(-1, 1)


def not_counted(model: torch.nn.Linear) -> None:
    model.weight.data.mul_(0.99)


def nothing(model: torch.nn.Linear) -> None:
    pass


@pytest.mark.parametrize("tail", [counted, not_counted])
def test_a_broken_tail_counts_only_if_no_tail_has_moved_parameters(
    tail: Callable[[torch.nn.Linear], None],
) -> None:
    for steps_before in (0, 5):  # of a loop whose tail may not be cut
        loop = Loop()
        loop.run(steps_before, nothing)
        loop.guard.skippable = True
        loop.run(2, tail)
        assert loop.break_off() == DIRTY
        assert loop.guard.reason == "parameters change after their optimizer's step"


def test_a_broken_tail_that_moves_nothing_counts() -> None:
    loop = Loop()
    loop.run(5, nothing)
    loop.guard.skippable = True
    loop.run(2, nothing)
    assert loop.break_off() == loop.step + 1, loop.guard.reason


def test_a_tail_that_may_not_be_cut_is_looked_at_in_the_steps_that_compare_all_bits() -> None:
    parameter = torch.randn(50, 20, requires_grad=True)
    owned = Owned()
    owned.arm([parameter])
    noticed = []
    for _ in range(100):
        owned.begin()
        owned.end_of_optimizers(decides=False)
        parameter.data.mul_(0.99)
        noticed.append(owned.end(optimized=True) == [parameter])
    assert noticed == [True] * 3 + [False] * 96 + [True] and owned.tail_moves


def test_what_moves_in_a_step_without_an_optimizer_is_noticed_at_its_end() -> None:
    parameter = torch.randn(50, 20, requires_grad=True)
    owned = Owned()
    owned.arm([parameter])
    for _ in range(6):
        owned.begin()
        owned.end_of_optimizers(decides=False)
        owned.end(optimized=True)
    owned.begin()
    with torch.no_grad():
        parameter.mul_(0.99)
    assert owned.end(optimized=False) == [parameter] and not owned.tail_moves
