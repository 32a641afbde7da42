"""Attributes of a script's own objects that change and are not kept are told of, once, by name."""

from __future__ import annotations

import copy
import itertools
import logging
import random
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.integrations.own_attributes import OwnAttributes, attributes_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Script(torch.nn.Linear):
    """A module of a script, with attributes of its own."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.calls, self.fixed, self.recent = 0, [1], deque([0.0], maxlen=3)
        self.nested, self.mean = SimpleNamespace(seen=0), torch.zeros(2)
        self.rng = random.Random(1)


def changed(**values: Any) -> list[str]:
    """What is said when these attributes of a Script change."""
    attributes, script = OwnAttributes("Trainer", "Keep it"), Script()
    attributes.step_ended([script])
    script.train(not script.training)
    for name, value in values.items():
        setattr(script, name, value)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("holdfast.sdk")
    logger.addHandler(handler)
    try:
        attributes.step_ended([script])
        attributes.look([script], lambda *_: True)
        script.calls = -1
        attributes.look([script], lambda *_: True)
    finally:
        logger.removeHandler(handler)
    return records


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calls", 1),
        ("recent", deque([0.0, 1.0])),
        ("nested", SimpleNamespace(seen=1)),
        ("mean", torch.ones(2)),
        ("rng", random.Random(2)),
    ],
)
def test_what_changes_is_told(name: str, value: Any) -> None:
    (told,) = changed(**{name: value})
    assert told.startswith(f"Trainer: Script.{name} changes in the training and is not kept")
    assert told.endswith("Keep it")


def test_what_stays_and_what_the_framework_changes_is_not_told() -> None:
    assert changed(fixed=[1]) == []


class Mean(torch.nn.Module):
    """Adds up as a metric of torchmetrics does: in attributes that belong to no state."""

    def __init__(self) -> None:
        super().__init__()
        self._defaults, self.total = {"total": torch.zeros(())}, torch.zeros(())


class Watching:
    """A callback with metrics."""

    def __init__(self) -> None:
        self.metrics = [Mean()]


def test_a_metric_that_a_callback_holds_is_told(caplog: pytest.LogCaptureFixture) -> None:
    attributes, callback = OwnAttributes("Trainer", ""), Watching()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(2):
            callback.metrics[0].total = callback.metrics[0].total + 1
            attributes.look([callback])
    assert "Trainer: Watching.metrics changes in the training" in caplog.text


def test_an_object_of_a_framework_has_no_attributes_of_the_script(caplog: pytest.LogCaptureFixture) -> None:
    attributes, module = OwnAttributes("Trainer", ""), torch.nn.Linear(1, 1)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for number in range(2):
            module.mine = [number]  # type: ignore[assignment]
            attributes.look([module])
    assert not caplog.records


def test_random_generators_of_what_gives_samples_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    attributes, owner, data = OwnAttributes("Trainer", ""), Ema.__new__(Ema), Ema.__new__(Ema)
    for each in (owner, data):
        vars(each).update(rng=random.Random(1), size=1, part=SimpleNamespace(rng=random.Random(2)))
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(2):
            attributes.look([owner], data=[data])
            owner.rng.random()  # type: ignore[attr-defined]
            data.rng.random()  # type: ignore[attr-defined]
            data.part.rng.random()  # type: ignore[attr-defined]
        assert len(caplog.records) == 1
        data.size = 2  # type: ignore[attr-defined]
        attributes.look([owner], data=[data])
    assert [record.getMessage().split()[1] for record in caplog.records] == ["Ema.rng", "Ema.size"]


def test_a_setting_of_a_module_of_torch_that_a_script_changes_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attributes, module = OwnAttributes("Lightning", "Keep it"), torch.nn.Dropout(0.1)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for rate in (0.1, 0.1, 0.2):
            module.p = rate
            attributes.look([module.train(), torch.nn.BatchNorm1d(2)])
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith("Lightning: Dropout.p changes in the training and is not kept")


class Ema:
    """A callback with an average of the weights, and the weights themselves."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.weights, self.average = module, list(module.parameters()), copy.deepcopy(module)
        self._parts = {"loss": torch.nn.BatchNorm1d(2)}


def grow(module: torch.nn.Module) -> None:
    """Written through `.data`, as averages often are."""
    for each in module.parameters():
        each.data.add_(1)


@pytest.mark.parametrize(
    ("part", "name"), [(lambda ema: ema.average, "average"), (lambda ema: ema._parts["loss"], "_parts")]
)
def test_a_module_that_no_tracked_one_holds_is_told_when_it_changes(
    part: Callable[[Ema], torch.nn.Module], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    trained = torch.nn.Linear(2, 2)
    attributes, ema = OwnAttributes("Trainer", ""), Ema(trained)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(2):
            attributes.step_ended([ema], trained=[trained])
            grow(trained)
        assert not caplog.records
        grow(part(ema))
        attributes.step_ended([ema], trained=[trained])
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"Trainer: Ema.{name} changes in the training and is not kept")


class Averaging(torch.nn.Module):
    """Its attributes have names that torch's own code uses for other things."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))
        self.add, self.numel, self.append = 0, 0, 0


def test_an_attribute_with_the_name_of_a_method_that_a_framework_calls_is_the_scripts() -> None:
    module = Averaging()
    module.to(torch.float64).train()
    assert dict(attributes_of(module)) == {"add": 0, "numel": 0, "append": 0}


class Switching(torch.nn.Module):
    """A module of a script that changes what it calls, and reads on."""

    def __init__(self) -> None:
        super().__init__()
        self.loss, self.scale = torch.nn.MSELoss(), half
        self.rates, self.same = itertools.cycle([1, 2, 3]), itertools.cycle([1, 2])


def half(loss: float) -> float:
    return loss / 2


def test_functions_iterators_and_parts_of_a_module_that_change_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attributes, module = OwnAttributes("Lightning", ""), Switching()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        attributes.look([module])
        module.loss, module.scale = torch.nn.L1Loss(), float  # type: ignore[assignment]
        next(module.rates)
        attributes.look([module])
        for forward in (torch.nn.functional.relu, torch.nn.Module.forward.__get__(module)):
            module.forward = forward  # as frameworks replace it, and put it back
            attributes.look([module])
    named = {record.getMessage().split()[1] for record in caplog.records}
    assert named == {"Switching.loss", "Switching.scale", "Switching.rates"}
