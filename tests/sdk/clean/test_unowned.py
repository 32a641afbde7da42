"""A half-run step leaves no trace in what no optimizer owns, whatever it is and whatever was done to it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from holdfast.clean.guard import DIRTY, Guard
from holdfast.clean.unowned import Unowned
from holdfast.state.tracked import TrackedState


class Odd(torch.nn.Module):
    """Buffers of every kind that is kept in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.other = torch.nn.BatchNorm1d(3)
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("none", None)
        self.register_buffer("table", torch.zeros(1 << 19))
        self.register_buffer("shared", self.norm.running_mean)
        self.register_buffer("grown", torch.ones(2, requires_grad=True))
        self.register_buffer("brief", torch.ones(5, dtype=torch.bfloat16))

    brief: torch.Tensor
    turned: torch.Tensor

    def values(self) -> list[list[Any]]:
        return [[name, buffer.tolist()] for name, buffer in self.named_buffers()]


def watched(*modules: torch.nn.Module) -> Unowned:
    tracked = TrackedState()
    for index, module in enumerate(modules):
        tracked.add(f"m{index}", module)
    found = Unowned(tracked)
    found.arm()
    return found


def run_half_a_step(model: Odd) -> None:
    model.norm(torch.randn(8, 3))
    model.other(torch.randn(8, 3))
    with torch.no_grad():
        for name in ("turned", "table", "grown", "brief"):
            getattr(model, name).add_(1)


def test_what_a_step_did_is_undone() -> None:
    model = Odd()
    buffers = watched(model)
    buffers.begin()
    run_half_a_step(model)
    assert buffers.put_back() == "m0.table", "so large a buffer counts as still until it has moved"
    for _ in range(3):
        buffers.begin()
        before = model.values()
        run_half_a_step(model)
        assert model.values() != before
        assert buffers.put_back() == ""
        assert model.values() == before
        run_half_a_step(model)


def test_a_buffer_that_is_replaced_within_the_step_comes_back() -> None:
    model = Odd()
    buffers = watched(model)
    buffers.begin()
    before, was = model.values(), model.brief
    model.brief = torch.zeros(7)
    model.norm.running_var = None
    assert buffers.put_back() == ""
    assert model.values() == before and model.brief is was


@pytest.mark.parametrize("between", [False, True])
def test_a_buffer_that_is_turned_in_its_place_comes_back_as_it_was_read(*, between: bool) -> None:
    model = torch.nn.Module()
    model.register_buffer("table", torch.arange(6.0).view(2, 3))
    table = model.table
    assert isinstance(table, torch.Tensor)
    buffers = watched(model)
    buffers.begin()
    if between:  # then the turned one is what is kept
        table.data = table.data.t()
        buffers.begin()
    before = table.tolist()
    table.data = table.data.t()
    table.add_(1)
    assert buffers.put_back() == "" and table.tolist() == before


def test_buffers_that_moved_between_steps_are_followed() -> None:
    model = Odd()
    buffers = watched(model)
    buffers.begin()
    model.norm.running_var = torch.full((3,), 7.0)
    model.other.running_mean.data = torch.full((3,), 9.0)  # type: ignore[union-attr]
    model.brief = model.brief.to(torch.float64)
    run_half_a_step(model)
    buffers.begin()
    before = model.values()
    run_half_a_step(model)
    assert buffers.put_back() == ""
    assert model.values() == before


class Student(torch.nn.Module):
    """A frozen or slowly moving copy of a model, as teachers and momentum encoders are."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.teacher = torch.nn.Linear(size, size).requires_grad_(False)

    def move(self, how: str) -> None:
        weight = self.teacher.weight
        if how == "noted":
            with torch.no_grad():
                weight.mul_(0.5)
        elif how == "unseen":
            weight.data.mul_(0.5)
        elif how == "numpy":
            weight.detach().numpy()[0, 0] -= 7.0
        elif how == "swapped":
            weight.data.copy_(weight.data.flip(0))
        else:
            self.teacher.weight = torch.nn.Parameter(weight.detach() * 2, requires_grad=False)


HOWS = ["noted", "unseen", "numpy", "swapped", "replaced"]


@pytest.mark.parametrize("how", HOWS)
def test_a_teacher_that_moves_for_the_first_time_is_named_and_kept_from_then_on(how: str) -> None:
    model = Student()
    unowned = watched(model)
    for _ in range(7):
        unowned.begin()
    model.move(how)
    assert unowned.put_back() == "m0.teacher.weight"
    unowned.begin()
    before = model.teacher.weight.detach().clone()
    model.move(how)
    assert not torch.equal(model.teacher.weight, before)
    assert unowned.put_back() == "" and torch.equal(model.teacher.weight, before)


@pytest.mark.parametrize("how", HOWS)
def test_a_teacher_that_moves_in_the_first_steps_is_kept_before_any_break(how: str) -> None:
    model = Student()
    unowned = watched(model)
    unowned.begin()
    model.move(how)
    unowned.begin()
    before = model.teacher.weight.detach().clone()
    model.move(how)
    assert unowned.put_back() == "" and torch.equal(model.teacher.weight, before)


def test_what_holds_still_is_proven_to_and_nan_equals_nan() -> None:
    model = Student()
    model.teacher.weight.data[0, 0] = math.nan
    unowned = watched(model)
    unowned.begin()
    assert unowned.put_back() == ""


def test_what_is_too_large_to_be_kept_is_told_once_and_refused(caplog: pytest.LogCaptureFixture) -> None:
    model = Student(size=4100)  # 64.1 MiB, and no optimizer owns as much
    unowned = watched(model)
    for _ in range(3):
        unowned.begin()
        model.move("noted")
    unowned.begin()
    assert unowned.put_back() == "m0.teacher.weight"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and told[0].startswith("m0.teacher.weight changes in a step, no optimizer owns it")


def test_buffers_that_are_registered_later_are_seen() -> None:
    model = Odd()
    unowned = watched(model)
    unowned.begin()
    model.register_buffer("late", torch.zeros(3))
    model.none = torch.ones(2)
    unowned.begin()
    before = model.values()
    model.late.add_(1)  # type: ignore[operator]
    model.none.mul_(3)
    assert unowned.put_back() == "" and model.values() == before


def test_a_submodule_that_is_replaced_between_steps_is_watched() -> None:
    model = Student()
    unowned = watched(model)
    for _ in range(7):
        unowned.begin()
    model.teacher = copy.deepcopy(model.teacher)
    unowned.begin()
    assert unowned.put_back() == ""
    model.move("unseen")
    assert unowned.put_back() == "m0.teacher.weight", "it is the new one that is watched"


@pytest.mark.parametrize("how", ["replaced", "added", "removed"])
def test_submodules_of_the_steps_start_come_back(how: str) -> None:
    model = Student()
    unowned = watched(model)
    unowned.begin()
    before, was = model.teacher.weight.detach().clone(), model.teacher
    if how == "replaced":
        model.teacher = torch.nn.Linear(4, 4)
    elif how == "added":
        model.late = torch.nn.Linear(4, 4)
    else:
        del model.teacher
    assert unowned.put_back() == ""
    assert dict(model.named_children()) == {"teacher": was} and torch.equal(was.weight, before)


def test_a_weight_of_an_optimizer_that_is_replaced_in_the_step_is_no_clean_state() -> None:
    trained = Trained()
    trained.model.weight = torch.nn.Parameter(torch.ones(30, 40))
    assert trained.guard.settle(5) == DIRTY and "model.weight" in trained.guard.reason


class Trained:
    """A guarded model and its optimizer, a few steps into their training."""

    def __init__(
        self, steps: int = 5, model: torch.nn.Module | None = None, owned: torch.nn.Module | None = None
    ) -> None:
        self.model: Any = model or torch.nn.Linear(40, 30)
        self.optimizer = torch.optim.AdamW((owned or self.model).parameters())
        tracked = TrackedState()
        tracked.add("model", self.model)
        tracked.add("optimizer", self.optimizer)
        self.guard = Guard(tracked)
        self.guard.arm()
        for step in range(steps):
            self.guard.begin(step, keep_random=False)
            self.half()
            self.optimizer.step()
            self.guard.end()
        self.steps = steps
        self.guard.begin(steps, keep_random=False)

    def half(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(next(self.model.parameters()).shape[1])).sum().backward()


def test_a_copy_of_the_very_first_step_does_not_outlive_it() -> None:
    """The rank was broken in step 0, and goes on with step 1 from another rank's state."""
    trained = Trained(0)
    trained.guard.begin(0, keep_random=False, whole=True)
    trained.half()
    assert trained.guard.settle(0) == 0
    trained.guard.arm()
    trained.guard.begin(1, keep_random=False)
    trained.half()
    trained.optimizer.step()
    assert trained.guard.settle(1) == DIRTY, "nothing has kept this step's start"


def test_half_a_step_is_undone_and_a_whole_one_is_not() -> None:
    trained = Trained()
    before = trained.model.weight.detach().clone()
    trained.half()
    assert trained.guard.settle(5) == 5 and torch.equal(trained.model.weight, before)
    assert trained.model.weight.grad is None
    stepped = Trained()
    stepped.half()
    stepped.optimizer.step()
    assert stepped.guard.settle(5) == DIRTY and "an optimizer had started its step" in stepped.guard.reason


@pytest.mark.parametrize("seen", [True, False])
def test_a_weight_that_moves_before_its_optimizer_for_the_first_time_is_no_clean_state(*, seen: bool) -> None:
    trained = Trained(steps=2)  # all bits are compared in the first steps, so that the write is surely seen
    with torch.no_grad():
        (trained.model.weight if seen else trained.model.weight.data).mul_(0.5)
    assert trained.guard.settle(2) == DIRTY
    assert trained.guard.reason == "model.weight has changed, and it is not copied at each step"


@pytest.mark.parametrize("seen", [True, False])
def test_a_weight_whose_group_came_later_and_that_moves_by_itself_is_no_clean_state(*, seen: bool) -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].requires_grad_(False)
    trained = Trained(steps=0, model=model, owned=model[0])
    model[1].requires_grad_(True)
    trained.optimizer.add_param_group({"params": list(model[1].parameters())})
    trained.half()
    trained.optimizer.step()
    trained.guard.end()
    trained.guard.begin(1, keep_random=False)  # all bits are compared in the first steps
    with torch.no_grad():
        (model[1].weight if seen else model[1].weight.data).mul_(0.5)
    assert trained.guard.settle(1) == DIRTY
    assert trained.guard.reason == "model.1.weight has changed, and it is not copied at each step"
