"""Attributes of a script's own objects that change and are not kept are told of, once, by name."""

from __future__ import annotations

import logging
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from holdfast.integrations.own_attributes import OwnAttributes


class Script(torch.nn.Linear):
    """A module of a script, with attributes of its own."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.calls, self.fixed, self.recent = 0, [1], deque([0.0], maxlen=3)
        self.nested, self.mean = SimpleNamespace(seen=0), torch.zeros(2)


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
    ],
)
def test_what_changes_is_told(name: str, value: Any) -> None:
    (told,) = changed(**{name: value})
    assert told.startswith(f"Trainer: Script.{name} changes in the training and is not kept")
    assert told.endswith("Keep it")


def test_what_stays_and_what_the_framework_changes_is_not_told() -> None:
    assert changed(fixed=[1]) == []


def test_an_object_of_a_framework_has_no_attributes_of_the_script(caplog: pytest.LogCaptureFixture) -> None:
    attributes, module = OwnAttributes("Trainer", ""), torch.nn.Linear(1, 1)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for number in range(2):
            module.mine = number  # type: ignore[assignment]
            attributes.look([module])
    assert not caplog.records
