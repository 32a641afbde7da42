"""What a script keeps in values, collections and iterators of any kind is named when the steps change it."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import math
import random
import time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from holdfast.clean.forgotten import ForgottenState
from holdfast.clean.looks.bits import bits_of
from holdfast.state.tracked import TrackedState
from tests.sdk.clean.looks.counted import Mixer, count
from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def test_variables_of_a_module_from_which_a_function_was_imported_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    imported = count

    def step() -> int:
        return imported()

    said = told(caplog, step)
    assert "what is not tracked: counted.COUNT. If" in said and "NAMES" not in said


def test_variables_of_a_module_of_which_there_is_an_object_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixer = Mixer()

    def drawn() -> float:
        return mixer.rate()

    assert "counted.COUNT" in told(caplog, drawn)


def test_numbers_of_any_kind_are_named(caplog: pytest.LogCaptureFixture) -> None:
    held = SimpleNamespace(mean=np.float64(1), small=np.float32(1), exact=Decimal(1), part=Fraction(1))
    same = SimpleNamespace(mean=np.float64(1), exact=Decimal(1))

    def step() -> None:
        held.mean, held.small = np.mean([held.mean, same.mean, 0.5]), np.float32(held.small * 0.9)
        held.exact, held.part = held.exact * same.exact * Decimal("0.9"), held.part * Fraction(9, 10)

    said = told(caplog, step)
    for name in ("held.mean", "held.small", "held.exact", "held.part"):
        assert name in said, name
    assert "same" not in said


def test_collections_of_the_same_length_are_named(caplog: pytest.LogCaptureFixture) -> None:
    weights, long = dict.fromkeys(range(200), 1.0), [1.0] * 30_000
    picked, frozen = {1}, SimpleNamespace(of=frozenset([1]))
    newest, same = {0: 0.5, 1: 0.5}, dict.fromkeys(range(200), 1.0)

    def step() -> None:
        weights[150] *= 0.9 * same[150]
        long[-1] *= 0.9
        picked.add(picked.pop() + 1)
        frozen.of = frozenset(each + 1 for each in frozen.of)
        newest[len(newest) + min(newest)] = newest.pop(min(newest))

    said = told(caplog, step)
    for name in ("weights", "long", "picked", "frozen.of", "newest"):
        assert name in said, name
    assert "same" not in said


def test_single_objects_of_long_collections_are_named(caplog: pytest.LogCaptureFixture) -> None:
    bank, pairs = [torch.ones(1) for _ in range(200)], {at: (1.0, at) for at in range(200)}
    tasks, same = [Task(1.0) for _ in range(200)], [Task(1.0) for _ in range(200)]

    def step() -> None:
        bank[150], pairs[170] = bank[150] * 0.9, (pairs[170][0] * 0.9, 0)
        for task in tasks[160:180]:
            task.weight *= 0.9 * same[0].weight

    said = told(caplog, step)
    assert "bank" in said and "pairs" in said and "tasks[1" in said and "same" not in said


def test_a_cache_of_what_is_drawn_is_named_and_one_of_what_is_read_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @functools.cache
    def noise(at: int) -> float:
        return random.gauss(at, 1)

    @functools.cache
    def row(at: int) -> float:
        return float(at)

    count = iter(range(9))

    def step() -> float:
        return noise(at := next(count)) + row(at)

    said = told(caplog, step)
    assert "noise" in said and "row" not in said


def test_iterators_of_any_kind_are_named(caplog: pytest.LogCaptureFixture) -> None:
    orders, grid = itertools.permutations(range(6)), itertools.product([1, 2], [3, 4], [5, 6])
    values, items = iter({1: 2, 3: 4, 5: 6, 7: 8}.values()), iter({1, 2, 3, 4, 5})
    left = reversed([1, 2, 3, 4])
    rows = SimpleNamespace(at=0)
    until, unread = iter(functools.partial(next, iter(range(9))), 8), itertools.permutations(range(6))

    def step() -> object:
        return [next(each) for each in (orders, grid, values, items, left, until)], unread, rows

    said = told(caplog, step)
    for name in ("orders", "grid", "values", "items", "left", "until"):
        assert name in said, name
    assert "unread" not in said and "rows" not in said


def plain(loss: float) -> float:
    return loss


def doubled(loss: float) -> float:
    return 2 * loss


class Task:
    """One of the tasks of a script."""

    def __init__(self, weight: float) -> None:
        self.weight = weight


def test_which_function_class_or_object_a_script_has_chosen_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heads = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    tasks = [Task(0.5), Task(0.5)]
    held = SimpleNamespace(loss=plain, kind=torch.nn.MSELoss, task=tasks[0], own=torch.nn.MSELoss())
    other = SimpleNamespace(head=heads[0], teacher=None, same=plain)
    count = itertools.count()

    def step() -> None:
        if next(count) == 1:
            held.loss, held.kind, held.task = doubled, torch.nn.L1Loss, tasks[1]
            other.head, held.own = heads[1], torch.nn.L1Loss()
            other.teacher = torch.nn.Linear(2, 2)

    said = told(caplog, step)
    for name in ("held.loss", "held.kind", "held.own", "held.task", "other.head", "other.teacher"):
        assert name in said, name
    assert "other.same" not in said


def test_which_tracked_object_a_script_uses_is_named(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(2, 2)
    first, second = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.1, 0.2))
    using = SimpleNamespace(optimizer=first, always=first)
    count = itertools.count()

    def step() -> None:
        if next(count) == 1:
            using.optimizer = second

    said = told(caplog, step, model=model, first=first, second=second)
    assert "using.optimizer" in said and "using.always" not in said and "first" not in said


def test_what_the_first_step_chooses_is_named_and_what_it_makes_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = SimpleNamespace(loss=plain, made=None)

    def step() -> None:
        held.loss, held.made = doubled, held.made or Mixer()

    said = told(caplog, step)
    assert "held.loss" in said and "held.made" not in said


def test_functions_that_are_made_anew_and_numbers_that_stay_are_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def scaled(by: float) -> Callable[[float], float]:
        return lambda x: x * by

    held = SimpleNamespace(scale=scaled(0.5), nothing=float("nan"), mean=np.float64("nan"))

    def step() -> None:
        held.scale, held.nothing, held.mean = scaled(0.5), math.nan, np.float64("nan")

    assert told(caplog, step) == ""


def test_the_time_of_a_clock_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    meter = SimpleNamespace(at=time.perf_counter(), last=None, began=time.time_ns(), spent=0.0)

    def step() -> None:
        now = time.perf_counter()
        meter.spent, meter.at, meter.last, meter.began = now - meter.at, now, time.time(), time.time_ns()

    said = told(caplog, step, steps=4)
    assert "meter.spent" in said and "meter.at" not in said and "last" not in said and "began" not in said


def test_the_time_of_a_clock_is_not_told_when_a_step_breaks(caplog: pytest.LogCaptureFixture) -> None:
    meter = SimpleNamespace(at=time.perf_counter(), seen=[0])
    forgotten = ForgottenState(TrackedState())
    forgotten.entered(lambda: meter, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        forgotten.step_ended()
        meter.at = time.perf_counter()
        meter.seen.append(1)
        forgotten.broken_off()
    assert "meter.seen" in caplog.text and "meter.at" not in caplog.text


def test_long_collections_of_objects_are_told_by_their_length() -> None:
    def bits(values: Any) -> Any:
        return bits_of(values, ())

    assert bits([object()] * 100) == bits([object()] * 100) != bits([object()] * 101)
    assert bits(collections.OrderedDict(a=1, b=2)) != bits(collections.OrderedDict(b=2, a=1))


def stream() -> Iterator[int]:
    yield from range(9)


def test_an_iterator_that_is_at_its_end_is_read(caplog: pytest.LogCaptureFixture) -> None:
    few, numbers = itertools.permutations([1]), stream()

    def step() -> object:
        return [next(each, None) for each in (few, numbers)]

    told(caplog, step, steps=16)  # it raises nothing


class Event(Enum):
    """As ignite's: its text is made by code of its own, which fails for what it was not made for."""

    STARTED = "started"
    ENDED = "ended"

    def __repr__(self) -> str:
        raise AttributeError(f"no text for {self.name} here")


class Closed(int):
    def __repr__(self) -> str:
        raise RuntimeError("no text here")


def test_which_member_of_an_enumeration_a_value_is_is_named_without_code_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    last, still = [Event.STARTED], Event.STARTED

    def step() -> object:
        last[0] = Event.ENDED if last[0] is Event.STARTED else Event.STARTED
        return still

    said = told(caplog, step)
    assert "last" in said and "still" not in said and "cannot be seen" not in said


def test_one_object_that_cannot_be_looked_at_is_left_out_and_the_rest_is_looked_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed, losses = Closed(3), [0.0]

    def step() -> object:
        losses[0] += 1.0
        return closed

    said = told(caplog, step).splitlines()
    (unseen,) = [each for each in said if "cannot be seen" in each]
    assert unseen.startswith("whether the steps change closed cannot be seen") and "no text here" in unseen
    assert [each for each in said if "what is not tracked: losses[0]" in each]
