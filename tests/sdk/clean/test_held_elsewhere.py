"""What a script keeps in files, arrays, the environment and the like is looked at; and what a first step sets
once is named."""

from __future__ import annotations

import array
import contextvars
import csv
import itertools
import multiprocessing
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from holdfast import Session
from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def test_what_is_kept_in_other_memory_is_named(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    numbers, raw, mapped = (
        array.array("d", [1.0]),
        bytearray(8),
        np.memmap(tmp_path / "m", "f8", "w+", 0, (1,)),
    )
    shared, local = multiprocessing.Value("d", 1.0), threading.local()
    factor = contextvars.ContextVar("factor", default=1.0)
    session = Session()
    local.count, session.best, same = 0, 1.0, array.array("d", [1.0])  # type: ignore[attr-defined]
    os.environ["TESTS_SCALE"] = "1.0"

    def step() -> None:
        numbers[0] *= 0.9
        raw[0] += 1
        mapped[0] += 1
        shared.value *= 0.9
        local.count += 1
        factor.set(factor.get() * 0.9)
        session.best *= 0.9  # type: ignore[attr-defined]
        os.environ["TESTS_SCALE"] = str(float(os.environ["TESTS_SCALE"]) * same[0] * 0.5)

    try:
        said = told(caplog, step)
    finally:
        del os.environ["TESTS_SCALE"]
    for name in (
        "numbers",
        "raw",
        "mapped",
        "shared",
        "local.count",
        "factor",
        "session.best",
        "TESTS_SCALE",
    ):
        assert name in said, name
    assert "same" not in said


def test_a_file_that_the_steps_read_is_named(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "small").write_text("1\n2\n3\n4\n5\n")
    lines, rows, unread = (open(tmp_path / "small") for _ in range(3))
    reader, log = csv.reader(rows), open(tmp_path / "log", "w")

    def step() -> None:
        log.write(lines.readline() + str(next(reader)) + unread.name)

    said = told(caplog, step)
    assert "lines" in said and "reader" in said
    assert "unread" not in said and "log" not in said.replace("log.", "")
    for each in (lines, rows, unread, log):
        each.close()


class Net(torch.nn.Module):
    """A module that centres its inputs by those that it sees first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        if not hasattr(self, "shift"):
            self.shift = x.mean(0).detach()
        return self.inner(x - self.shift)


def test_what_the_first_step_sets_is_named(caplog: pytest.LogCaptureFixture) -> None:
    net, norm, stats, flags = (
        Net(),
        SimpleNamespace(first=None),
        dict[str, float](),
        SimpleNamespace(ready=False),
    )

    def step() -> None:
        loss = float(net(torch.ones(3, 2)).sum().detach())
        norm.first = norm.first or loss
        stats.setdefault("first", loss)
        flags.ready = True

    changes, sets = told(caplog, step, net=net).splitlines()
    assert "norm.first" in changes and "flags.ready" in changes
    assert "the first step sets what is not tracked: net.shift, stats['first']." in sets


def test_a_function_that_is_wrapped_again_and_again_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def halved(inner: Callable[[float], float]) -> Callable[[float], float]:
        return lambda x: inner(x) / 2

    loss: Callable[[float], float] = float
    same: Callable[[float], float] = halved(float)

    def step() -> None:
        nonlocal loss, same
        loss, same = halved(loss), halved(float)

    said = told(caplog, step)
    assert "loss" in said and "same" not in said


def test_a_hook_that_a_step_registers_is_named(caplog: pytest.LogCaptureFixture) -> None:
    model, other = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 2)
    other.register_forward_hook(lambda *_: None)

    said = told(caplog, lambda: model[0].register_forward_hook(lambda *_: None), model=model, other=other)
    assert "hooks of model.0." in said and "other" not in said


def test_what_an_object_keeps_that_lies_around_its_class_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """An average in a variable of the function was named, although the state of an object has it."""
    average, other = {"weight": torch.ones(3)}, {"weight": torch.ones(3)}

    class Kept:
        def state_dict(self) -> dict[str, Any]:
            return {name: each.clone() for name, each in average.items()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            average.update(state)

    def step() -> None:
        average["weight"] *= 0.9
        other["weight"] *= 0.9

    said = told(caplog, step, average=Kept())
    assert "other['weight']" in said and "average" not in said


def test_what_a_second_step_removes_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    held = SimpleNamespace(first=None, steps=0)

    def step() -> None:
        held.steps += 1
        if held.steps == 1:
            held.first = 1.5
        elif held.steps == 2:
            del held.first

    assert "held.steps" in told(caplog, step)


def test_an_iterator_that_ends_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    orders, pairs = itertools.permutations(range(2)), itertools.product(range(2), repeat=0)

    def step() -> None:
        next(orders, None)
        next(pairs, None)

    assert "orders" in told(caplog, step, steps=4)
