"""What a callback changes, and what a function does before its steps, is noticed, put back, or named."""

from __future__ import annotations

import pytest
import torch

from holdfast.clean.guard import DIRTY, Guard
from holdfast.state.tracked import TrackedState


class Trained:
    """A small model that has trained for a step, and its guard."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 4)
        self.model = torch.nn.Sequential(self.first, torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        tracked = TrackedState()
        for name, thing in (("m", self.model), ("o", self.optimizer), ("s", self.schedule)):
            tracked.add(name, thing)
        self.guard = Guard(tracked)
        self.guard.arm()
        self.guard.begin(0, keep_random=False)
        self.model(torch.randn(8, 4)).square().mean().backward()
        self.optimizer.step()
        self.guard.end()


def test_weights_that_a_broken_callback_has_swapped_are_not_taken_for_clean() -> None:
    trained = Trained()
    trained.guard.beside.watch()
    for parameter in trained.model.parameters():
        parameter.data.copy_(torch.zeros_like(parameter))  # no version counts this
    assert trained.guard.settle(1) == DIRTY
    assert trained.guard.reason.endswith("while it had changed m.0.weight")


def test_weights_that_a_callback_has_put_back_are_as_they_were() -> None:
    trained = Trained()
    trained.guard.beside.watch()
    kept = [parameter.data.clone() for parameter in trained.model.parameters()]
    for parameter in trained.model.parameters():
        parameter.data.copy_(torch.zeros_like(parameter))
    for parameter, value in zip(trained.model.parameters(), kept, strict=True):
        parameter.data.copy_(value)
    assert trained.guard.beside.changed() == ""
    trained.guard.beside.unwatch()
    assert trained.guard.settle(1) == 1


def test_what_is_small_is_put_back_when_a_callback_breaks() -> None:
    trained = Trained()
    trained.guard.beside.watch()
    trained.model.eval()
    trained.model[0].requires_grad_(False)
    trained.optimizer.param_groups[0]["lr"] = 9.0
    trained.schedule.last_epoch = 7
    assert trained.guard.settle(1) == 1
    assert all(part.training for part in trained.model.modules())
    assert all(parameter.requires_grad for parameter in trained.model.parameters())
    assert (trained.optimizer.param_groups[0]["lr"], trained.schedule.last_epoch) == (0.1, 0)


@pytest.mark.parametrize("broken", ["a callback", "a step"])
def test_a_rate_that_is_a_tensor_is_put_back_as_the_same_tensor(broken: str) -> None:
    """A script that fills it, and does not ask the optimizer for it, goes on to set the rate."""
    trained = Trained()
    rate, betas = torch.tensor(0.5), (torch.tensor(0.9), torch.tensor(0.99))
    group = trained.optimizer.param_groups[0]
    group.update(lr=rate, betas=betas)
    if broken == "a step":
        trained.guard.begin(1, keep_random=False)
    else:
        trained.guard.beside.watch()
    rate.fill_(0.25)
    betas[1].fill_(0.5)
    group["betas"] = (0.5, 0.5)
    assert trained.guard.settle(1) == 1
    assert group["lr"] is rate and rate == 0.5
    assert group["betas"][0] is betas[0] and group["betas"][1] is betas[1] and betas[1] == 0.99


@pytest.mark.parametrize("name", ["m.1.num_batches_tracked", "m.0.weight"])
def test_a_callback_that_changes_a_tensor_is_named(name: str) -> None:
    trained = Trained()
    trained.guard.beside.watch()
    if name == "m.0.weight":
        trained.first.weight.data.mul_(2)
    else:
        with torch.no_grad():
            trained.model(torch.randn(8, 4))  # without model.eval()
    assert trained.guard.beside.changed() == name


def test_what_overwrites_the_state_before_the_steps_is_named_and_the_rest_put_back() -> None:
    trained = Trained()
    beside = trained.guard.beside
    beside.watch(states=True)
    trained.optimizer.param_groups[0]["lr"] = 9.0
    with torch.no_grad():
        for parameter in trained.model.parameters():
            parameter.copy_(parameter.clone())  # as a broadcast does: the same values
    mean = trained.model.get_buffer("1.running_mean").clone()
    trained.model(torch.randn(8, 4))  # batch norm moves its buffers, as plain DDP does
    assert beside.overwritten() == ""
    assert torch.equal(trained.model.get_buffer("1.running_mean"), mean)
    assert trained.optimizer.param_groups[0]["lr"] == 0.1
    beside.watch(states=True)
    trained.first.reset_parameters()
    assert beside.overwritten() == "m.0.weight"
    beside.watch(states=True)
    trained.optimizer.load_state_dict(trained.optimizer.state_dict())
    trained.optimizer.state[trained.first.bias]["exp_avg"] = torch.zeros(4)
    assert beside.overwritten() == "the state of o"


class Curved(torch.optim.SGD):
    """An optimizer with a method of its own that changes its state between steps, as Sophia's."""

    def look(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            held = self.state[parameter]
            held["curvature"] = held.get("curvature", 0) + 1


def test_a_step_that_has_moved_an_optimizers_state_before_its_step_is_not_undone() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = Curved(model.parameters(), lr=0.1)
    tracked = TrackedState()
    tracked.add("m", model)
    tracked.add("o", optimizer)
    guard = Guard(tracked)
    guard.arm()
    guard.begin(3, keep_random=False)
    assert guard.settle(3) == 3
    guard.begin(3, keep_random=False)
    optimizer.look()
    assert guard.settle(3) == DIRTY
    assert guard.reason.startswith("the state of o has changed")
