"""What a script puts into objects of torch, Python and the session is reached, and named if it changes."""

from __future__ import annotations

import importlib
import itertools
import logging
import queue
import random
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from holdfast import Session
from holdfast.clean.looks.reach import reached
from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


def test_what_is_in_data_sets_samplers_and_queues_is_named(caplog: pytest.LogCaptureFixture) -> None:
    labels, still = TensorDataset(torch.zeros(40, 2), torch.zeros(40)), TensorDataset(torch.zeros(9))
    hard, bank = Subset(still, [1, 2, 3]), queue.Queue[int]()
    chosen, loader = WeightedRandomSampler([1.0, 2.0, 3.0], 2), DataLoader(TensorDataset(torch.zeros(9, 4)))
    dealt: DistributedSampler[Any] = DistributedSampler(still, 2, 0)

    def step() -> None:
        labels.tensors[1][7] += 1
        hard.indices = [each + 1 for each in hard.indices]
        chosen.weights[2] *= 2
        bank.put(bank.qsize())
        loader.dataset.tensors[0][3] += 1  # type: ignore[attr-defined]
        dealt.set_epoch(dealt.epoch + 1)  # from the number of the step, as scripts do

    said = told(caplog, step)
    for name in ("labels.tensors[1]", "hard.indices", "chosen.weights", "bank.queue", "loader.dataset"):
        assert name in said, name
    assert "still" not in said and "dealt" not in said


def test_an_iterator_that_reads_another_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    rates, numbered = itertools.cycle([0.1, 0.2, 0.3, 0.4]), enumerate([4, 5, 6, 7])
    pairs, mapped = zip([1, 2, 3], [4, 5, 6], strict=True), map(str, [7, 8, 9])
    part, unread = itertools.islice([1, 2, 3, 4, 5], 4), itertools.cycle([1, 2])

    def step() -> object:
        return [next(each) for each in (rates, numbered, pairs, mapped, part)], unread

    said = told(caplog, step)
    for name in ("rates", "numbered", "pairs", "mapped", "part"):
        assert name in said, name
    assert "unread" not in said


class Easier(Dataset[torch.Tensor]):
    """Changes with each sample that it gives."""

    given = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        self.given += 1
        return torch.ones(2) * self.given


class Mixing:
    """Counts its calls."""

    calls = 0

    def __call__(self, samples: list[Any]) -> torch.Tensor:
        self.calls += 1
        return torch.stack(samples) * self.calls


def test_what_only_a_loader_holds_is_named(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(seed=None)
    session.track(model=torch.nn.Linear(2, 2))

    @session.elastic
    def train() -> None:
        loader = session.loader(Easier(), 4, collate_fn=Mixing())
        for _ in zip(session.steps(3), loader, strict=False):
            session.runtime.forgotten.step_ended()

    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    session.close()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "loader(Easier).given" in said and "loader(Mixing).calls" in said


def test_a_generator_that_asks_the_session_where_it_is_keeps_no_position() -> None:
    session: Any = SimpleNamespace(step=3)

    def ahead() -> Iterator[int]:
        drawn = random.Random(1)
        for step in range(session.step, 9):
            drawn.random()
            yield step

    def alone() -> Iterator[int]:
        yield from range(9)
        at = 3
        while True:
            at += 1
            yield at

    one, other = ahead(), alone()
    for _ in range(11):
        next(one, None), next(other)
    one = ahead()
    next(one)
    names = [name for name, _ in reached([], (), {"one": one, "other": other})]
    assert "one.drawn" in names and "other.at" in names and "one.step" not in names


def test_what_a_compiler_notes_on_a_function_is_not_the_scripts() -> None:
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()

    compiled: Any = torch.compile(loss_of, backend="eager")
    compiled(torch.ones(2))
    compiled.calls = 1
    found = [name for name, _ in reached((), set(), {"loss_of": compiled})]
    assert "loss_of.calls" in found and not [name for name in found if "dynamo" in name]


OTHERS = """
def noted(fn):
    calls = []
    def outer():
        calls.append(1)
        return fn()
    return outer

@noted
def first():
    pass

@noted
def second():
    pass

class Settings:
    pass
"""


def test_one_name_is_one_object_whether_or_not_modules_are_entered(tmp_path: Path) -> None:
    """Where a step breaks off, modules are not entered, and what was seen at its start is compared: two
    functions that close over a variable of one name were taken for one that had changed."""
    (tmp_path / "noting_calls.py").write_text(OTHERS)
    sys.path.insert(0, str(tmp_path))
    try:
        noting: Any = importlib.import_module("noting_calls")
    finally:
        sys.path.remove(str(tmp_path))
    variables = {"settings": noting.Settings(), "table": [noting.second]}

    def firsts(*, modules: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, each in reached((), (), variables, modules=modules):
            found.setdefault(name, each)
        return found

    without, entered = firsts(modules=False), firsts(modules=True)
    assert without["calls"] is noting.second.__closure__[0].cell_contents
    assert all(entered[name] is each for name, each in without.items())
    assert "noting_calls.first" in entered
