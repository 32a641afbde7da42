"""Looking for what a script forgets sees into variables of running functions, and costs them no memory."""

from __future__ import annotations

import logging
import random
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Source:
    """Gives batches from a generator of its own."""

    def __init__(self, held: list[weakref.ref[torch.Tensor]]) -> None:
        self.batches = self._batches(held)

    def _batches(self, held: list[weakref.ref[torch.Tensor]]) -> Iterator[torch.Tensor]:
        while True:
            batch = torch.ones(3)
            held.append(weakref.ref(batch))
            yield batch


def test_a_look_keeps_no_variable_alive() -> None:
    """Before Python 3.13 a frame keeps the variables that it has shown: a step's logits lived until the next
    look, thousands of steps later."""
    looking, held = ForgottenState(TrackedState()), list[weakref.ref[torch.Tensor]]()

    def train() -> int:
        source = Source(held)
        for _ in range(3):
            logits = next(source.batches) * 2
            held.append(weakref.ref(logits))
            looking.step_ended()
        next(source.batches)  # its generator holds this one
        del logits
        return sum(each() is not None for each in held)

    looking.entered(train, ())
    assert (train(), len(held)) == (1, 7)


def test_what_the_loop_gives_no_value_is_looked_at_in_variables(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(2, 2)
    state = TrackedState()
    state.add("model", model)
    forgotten = ForgottenState(state)

    def add(history: list[float], means: np.ndarray[Any, Any], loss: float) -> None:
        history.append(loss)
        means[0] += loss

    def train() -> None:
        history: list[float] = []
        means, noise, drawn, calls = np.zeros(3), random.Random(1), random.Random(2), 0
        data, weights, rate = torch.ones(4, 2), [*model.parameters()], 0.1

        def step() -> float:
            nonlocal calls
            calls += 1
            return noise.random()

        for number in range(4):
            with torch.no_grad():
                model.weight.add_(rate)
            model(data).sum().backward()
            batch = [0.0] * number
            add(history, means, step() + len(batch) + len(weights))
            forgotten.step_ended()
        drawn.random()

    forgotten.entered(train, ())
    forgotten.begin()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    said = "\n".join(record.getMessage() for record in caplog.records)
    for name in ("history", "means", "noise", "calls"):
        assert name in said, name
    assert not any(name in said for name in ("data", "weights", "batch", "drawn", "number", "model"))


class Rows:
    """Reads from where it is."""

    def __init__(self) -> None:
        self.at = 0


def test_sparse_writes_are_seen_and_what_loaders_place_is_left_to_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows, ring, losses = Rows(), np.zeros(4096), [0.0] * 500
    kept, places = Rows(), [float("nan")] * 100
    forgotten = ForgottenState(TrackedState(), lambda: [kept])

    def train() -> None:
        for step in range(4):
            ring[7 * step + 5] = step + 1
            losses[100 + step] = 0.5
            for each in (rows, kept):
                each.at += 1
            assert len(places) == 100
            forgotten.step_ended()

    forgotten.entered(train, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    said = "\n".join(record.getMessage() for record in caplog.records)
    for name in ("ring", "losses", "rows.at"):
        assert name in said, name
    assert not any(name in said for name in ("kept", "places"))


def test_a_rate_that_is_a_tensor_of_the_optimizer_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    model, rate, other = torch.nn.Linear(2, 2), torch.tensor(0.1), torch.tensor(0.1)
    state = TrackedState()
    state.add("model", model)
    state.add("optimizer", torch.optim.SGD(model.parameters(), lr=rate))
    forgotten = ForgottenState(state)

    def train() -> None:
        for _step in range(4):
            rate.mul_(0.5)
            other.mul_(0.5)
            forgotten.step_ended()

    forgotten.entered(train, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "not tracked: other." in said


def test_a_text_is_read_once_and_not_in_each_recovery(caplog: pytest.LogCaptureFixture) -> None:
    forgotten = ForgottenState(TrackedState())

    def train(session: Any) -> None:
        total = 0
        for step in session.steps(3):
            total += step

    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(3):
            forgotten.entered(train, ())
            forgotten.begin()
            forgotten._told.clear()  # else a second reading would say nothing, either
    assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == ["total"]
