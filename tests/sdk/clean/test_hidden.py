"""What the steps change is not hidden behind something else that changes, or by the class of its object."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    import pytest


def test_a_number_of_an_object_does_not_hide_what_else_changes_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = torch.nn.Linear(2, 1)
    trainer = SimpleNamespace(step=0, average=torch.nn.Linear(2, 1))

    def step() -> None:
        trainer.step += 1
        model(torch.ones(1, 2))
        if trainer.step == 3:
            trainer.average.weight.data.mul_(2)

    text = told(caplog, step, model=model)
    assert "trainer.step" in text and "trainer.average.weight" in text


class Patience:
    """What its objects begin with is its own."""

    waited = 0


def test_what_a_step_sets_in_place_of_a_value_of_the_class_is_named(caplog: pytest.LogCaptureFixture) -> None:
    patience, done = Patience(), []

    def step() -> None:
        done.append(0)
        if len(done) == 3:
            patience.waited = 1

    assert "patience.waited" in told(caplog, step)


def test_groups_and_states_of_a_tracked_optimizer_are_kept_by_whatever_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    group, held = optimizer.param_groups[0], optimizer.state[model.weight]

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        group["lr"] *= 0.9
        held["looks"] = held.get("looks", 0) + 1

    assert told(caplog, step, 5, model=model, optimizer=optimizer) == ""
    assert "group['lr']" in told(caplog, step, 5, model=model)


def test_what_a_script_keeps_in_an_attribute_of_a_parameter_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    weight: Any = model[0].weight
    weight.mask, weight.decay = torch.ones(1, 2), 0.1

    def step() -> None:
        (model(torch.ones(1, 2)) * weight.mask.sum()).sum().backward()
        weight.grad = None
        weight.mask = weight.mask * 0.5

    said = told(caplog, step, model=model)
    assert "weight.mask." in said and "decay" not in said
