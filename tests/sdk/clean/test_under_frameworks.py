"""Under a framework that calls the script's objects, what their modules and classes share is looked at."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast.clean.forgotten import ForgottenState
from holdfast.integrations.placed import PlacedLoader
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {"scale": 1.0}
FIXED = {"scale": 1.0}


class Module:
    """What a trainer calls."""

    calls = 0

    def __init__(self) -> None:
        self.own = 0


def told(caplog: pytest.LogCaptureFixture, step: Callable[[], object], *things: Any, steps: int = 4) -> str:
    """What is logged in these steps, under a framework that has these things from the script."""
    forgotten = ForgottenState(TrackedState())
    forgotten.things = lambda: list(things)
    forgotten.entered(torch.nn.functional.relu, ())  # the framework's function: no variables of the script
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(steps):
            step()
            forgotten.step_ended()
    return "\n".join(record.getMessage() for record in caplog.records)


def test_variables_of_the_module_and_of_the_class_are_named(caplog: pytest.LogCaptureFixture) -> None:
    module = Module()

    def step() -> None:
        SETTINGS["scale"] *= 1.5
        Module.calls += 1
        module.own += 1

    said = told(caplog, step, module)
    assert "what is not tracked: SETTINGS['scale'], Module.calls. If later" in said
    assert "own" not in said and "FIXED" not in said


def test_what_a_function_in_a_callback_closes_over_is_named(caplog: pytest.LogCaptureFixture) -> None:
    seen = {"epochs": 0}

    def end() -> None:
        seen["epochs"] += 1

    callback = SimpleNamespace(on_train_epoch_end=end)  # of a class that is not the script's
    assert "what is not tracked: seen['epochs']. If later" in told(caplog, end, callback)


class Called:
    """What a framework's object was given to call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_an_object_or_a_method_that_a_framework_was_given_to_call_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loss, metric = Called(), Called()
    trainer = SimpleNamespace(loss=loss, metric=metric.__call__)

    def step() -> None:
        loss()
        metric()

    assert "what is not tracked: loss.calls, metric.calls. If" in told(caplog, step, trainer)


def test_nothing_is_said_where_the_script_has_no_framework(caplog: pytest.LogCaptureFixture) -> None:
    forgotten = ForgottenState(TrackedState())
    batches = iter(DataLoader(TensorDataset(torch.ones(8, 1))))
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(4):
            next(batches)
            SETTINGS["scale"] *= 1.5
            forgotten.step_ended()
    assert not caplog.records


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_is_read_from_step_to_step_is_named(
    caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    hidden = zip(itertools.count(), DataLoader(TensorDataset(torch.ones(8, 1)), num_workers=workers))
    assert "what is not tracked: DataLoader(TensorDataset)[" in told(caplog, hidden.__next__)


def test_a_loader_that_is_opened_in_each_step_or_by_holdfast_is_not(caplog: pytest.LogCaptureFixture) -> None:
    data = TensorDataset(torch.ones(8, 1))
    anew = DataLoader(data, num_workers=1, persistent_workers=True)
    placed = PlacedLoader(DataLoader(data), 1, 0)
    placed.place(0, 2)
    training, lengths = placed.open(), itertools.count(1)

    def step() -> None:
        next(training)
        assert len(list(itertools.islice(anew, next(lengths)))) < len(data)

    assert not told(caplog, step)
    anew._iterator._shutdown_workers()  # type: ignore[union-attr]
