"""What a function draws before its steps is the same each time, and what it seeds there counts for the first
step; a function that is called again goes on with the numbers of the step that it goes on with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.clean.again.made_again import CalledAgain
from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def state() -> Any:
    """A rank without an agent, whose steps are not seeded. Its function begins after four steps."""
    entry, functions = SimpleNamespace(tracks_inside=False, first=-1), SimpleNamespace(base=4)
    return SimpleNamespace(
        tracked=TrackedState(), rank=0, world_size=2, completed=4, seed=None, agent=None, entry=entry,
        functions=functions,
    )  # fmt: skip


def draws(again: CalledAgain, before: Callable[[], object], *, seeded: bool = False) -> list[float]:
    """What the first step draws after the function did this before it."""
    again.called()
    before()
    again.steps_begin(10, seeded=seeded, tells=False)
    return [float(torch.rand(()))]


def of(seed: int) -> list[float]:
    return [float(torch.rand((), generator=torch.Generator().manual_seed(seed)))]


def test_a_function_that_seeds_begins_with_its_seed_each_time_that_it_begins(state: Any) -> None:
    again = CalledAgain(state, ForgottenState(state.tracked))
    torch.manual_seed(1)
    again.entered()
    for _ in range(2):  # broken off in its first step, and called again
        assert draws(again, lambda: torch.manual_seed(99)) == of(99)


def test_a_function_that_goes_on_draws_what_the_step_draws(state: Any) -> None:
    again = CalledAgain(state, ForgottenState(state.tracked))
    torch.manual_seed(1)
    again.entered()
    first: list[float] = []
    draws(again, lambda: first.append(float(torch.rand(()))))
    state.completed = 9
    torch.manual_seed(7)  # the state of the ninth step is restored
    second: list[float] = []
    assert draws(again, lambda: second.append(float(torch.rand(())))) == of(7)
    assert first == second == of(1)


def test_a_process_that_begins_with_restored_numbers_draws_from_these(state: Any) -> None:
    """The snapshot with which a later function begins is of the moment before it was called."""
    again = CalledAgain(state, ForgottenState(state.tracked))
    torch.manual_seed(1)
    again.entered()
    torch.manual_seed(5)
    drawn: list[float] = []
    draws(again, lambda: drawn.append(float(torch.rand(()))))
    assert drawn == of(5)


def test_a_process_that_takes_a_place_later_draws_what_the_others_drew(state: Any) -> None:
    again = CalledAgain(state, ForgottenState(state.tracked))
    torch.manual_seed(1)
    again.entered()
    state.completed = 9
    torch.manual_seed(7)
    drawn: list[float] = []
    assert draws(again, lambda: drawn.append(float(torch.rand(())))) == of(7)
    assert drawn == of(1)
