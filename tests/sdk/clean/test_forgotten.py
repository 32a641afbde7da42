"""What the steps of a script change and nothing keeps is named, and nothing else is."""

from __future__ import annotations

import collections
import itertools
import logging
import random
import subprocess
import sys
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils import prune

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest


class Env:
    """An environment with a position and a generator of its own."""

    def __init__(self) -> None:
        self.position, self.rng = 0.0, np.random.default_rng(1)

    def step(self) -> None:
        self.position += float(self.rng.normal())


class Counting(torch.nn.Module):
    """A module that counts its calls in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = torch.nn.Linear(2, 2), 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen: torch.Tensor = self.seen + 1
        out: torch.Tensor = self.inner(x)
        return out


class Telling(Counting):
    """The same, and its state says so."""

    def get_extra_state(self) -> int:
        return self.calls

    def set_extra_state(self, state: int) -> None:
        self.calls = state


class Stepping(torch.optim.SGD):
    """An optimizer that keeps its number of steps in an attribute."""

    taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        return super().step(closure)


class Limit:
    """What every object of the class shares, and what an object without a dict keeps."""

    __slots__ = ("at",)
    shared = 1.0

    def __init__(self) -> None:
        self.at = 1


def smoothed(value: float, _kept: list[float] = [1.0]) -> float:  # noqa: B006
    _kept[0] = 0.9 * _kept[0] + 0.1 * value
    return _kept[0]


class Kept:
    """An object with a state."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["values"]


def told(
    caplog: pytest.LogCaptureFixture,
    function: Callable[[], object],
    steps: int = 3,
    **tracked: Any,
) -> str:
    """What is logged in this many steps of a script whose step this is."""
    state = TrackedState()
    for name, thing in tracked.items():
        state.add(name, thing)
    forgotten = ForgottenState(state)
    # As a script of its own: its variables are those that the function closes over.
    alone = FunctionType(function.__code__, {}, "step", None, function.__closure__)
    alone.__module__ = __name__
    forgotten.entered(alone, ())
    forgotten.begin()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        for _ in range(steps):
            function()
            forgotten.step_ended()
    return "\n".join(record.getMessage() for record in caplog.records)


def test_a_forgotten_schedule_and_a_loaders_iterator_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    batches = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(20, 2))))
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer)
    kept = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup], [])

    def step() -> None:
        model(next(batches)[0]).sum().backward()
        optimizer.step()
        schedule.step()
        warmup.step()

    text = told(caplog, step, model=model, optimizer=optimizer, kept=kept)
    assert "not tracked: batches, schedule." in text or "not tracked: schedule, batches." in text
    assert "warmup" not in text


def test_what_a_script_keeps_for_itself_is_named(caplog: pytest.LogCaptureFixture) -> None:
    envs, recent, ema, best = [Env()], collections.deque(range(3), maxlen=3), {"w": torch.zeros(40)}, 9.0
    counts, place = collections.Counter[str](), SimpleNamespace(level=1)
    table, torchs, pythons = np.zeros((4, 3)).T, torch.Generator(), random.Random(1)

    def step() -> None:
        nonlocal best
        envs[0].step()
        recent.append(recent[-1] + 1)
        ema["w"][7] += 1
        counts["a"] += 1
        place.level += 1
        table[2, 1] += 1
        best *= 0.5
        pythons.random()
        torch.rand(1, generator=torchs)

    said = told(caplog, step)
    for name in (
        "envs",
        "recent[0]",
        "ema['w']",
        "counts['a']",
        "place.level",
        "table",
        "best",
        "pythons",
        "torchs",
    ):
        assert name in said
    assert len(caplog.records) == 1


def test_what_is_tracked_or_does_not_change_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    model, kept, rng, pythons = Telling(), Kept(), np.random.default_rng(1), random.Random(1)
    optimizer, data, frozen = torch.optim.Adam(model.parameters()), torch.randn(40, 2), Counting()
    numpys = np.random.RandomState(3)

    def step() -> None:
        model(data[:3]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.values.append(rng.normal() + pythons.random() + numpys.rand())
        frozen.inner(data[:3])
        torch.rand(3), random.random(), np.random.rand()

    tracked: dict[str, Any] = {"model": model, "optimizer": optimizer, "kept": kept}
    assert not told(caplog, step, rng=rng, pythons=pythons, numpys=numpys, **tracked)


def test_attributes_of_tracked_objects_that_no_state_has_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = Counting()
    optimizer = Stepping(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    said = told(caplog, step, model=model, optimizer=optimizer)
    assert "model.calls" in said
    assert "optimizer.taken" in said
    assert "model.inner" not in said
    assert "model.seen" not in said


def test_an_average_that_is_no_tracked_module_is_named(caplog: pytest.LogCaptureFixture) -> None:
    model, average = Counting(), Counting()

    def step() -> None:
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.1)

    assert "average.inner" in told(caplog, step, model=model)


class Follower:
    """An average of the weights that is no module."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.values = [each.detach().clone() for each in model.parameters()]

    def follow(self, model: torch.nn.Module) -> None:
        for own, theirs in zip(self.values, model.parameters(), strict=True):
            own.lerp_(theirs.detach(), 0.1)


def follow(average: torch.nn.Module, model: torch.nn.Module) -> None:
    with torch.no_grad():
        for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
            ours.lerp_(theirs, 0.1)


def test_objects_in_variables_of_the_function_that_change_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(2, 2)
    state = TrackedState()
    state.add("model", model)
    forgotten = ForgottenState(state)

    def train() -> None:
        average, teacher, weights = Counting().inner, torch.nn.Linear(2, 2), Follower(model)
        wrapped, each = torch.nn.Sequential(model), Env()
        for _ in range(4):
            with torch.no_grad():
                model.weight.add_(1.0)
            follow(average, wrapped[0])
            weights.follow(model)
            teacher(torch.ones(1, 2))
            each = Env()
            each.step()
            forgotten.step_ended()

    forgotten.entered(train, ())
    forgotten.begin()
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "average.weight" in said and "weights.values" in said
    assert not any(name in said for name in ("teacher", "wrapped", "each", "model."))


def test_what_classes_functions_and_hooks_keep_is_named(caplog: pytest.LogCaptureFixture) -> None:
    kind, limit, counted, keeps = Limit, Limit(), itertools.count(), smoothed
    layer, dropout, numbers = torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), iter(range(9))
    model = torch.nn.Sequential(layer, dropout)

    def rate() -> Iterator[float]:
        warmth = 1.0
        while True:
            warmth *= 0.9
            yield warmth

    def noisy() -> Callable[[torch.Tensor], torch.Tensor]:
        noise = torch.Generator().manual_seed(3)
        return lambda gradient: gradient + torch.randn(gradient.shape, generator=noise)

    def called() -> None:
        called.times += 1  # type: ignore[attr-defined]

    called.times, rates = 0, rate()  # type: ignore[attr-defined]
    layer.weight.register_hook(noisy())  # type: ignore[no-untyped-call]

    def step() -> None:
        kind.shared *= 0.5
        limit.at += 1
        called()
        keeps(next(counted) + next(rates) + next(numbers))
        dropout.p *= 0.9
        model(torch.ones(3, 2)).sum().backward()

    said = told(caplog, step, model=model)
    names = ("kind.shared", "limit.at", "counted", "keeps._kept[0]", "rates.warmth", "numbers")
    for name in (*names, "called.times", "dropout.p", "noise"):
        assert name in said, name


def test_what_changes_late_is_named_at_a_later_look(caplog: pytest.LogCaptureFixture) -> None:
    masks, kept = dict[str, torch.Tensor](), Kept()

    def step() -> None:
        kept.values.append(0.0)
        if len(kept.values) == 7:
            masks["w"] = torch.ones(3)

    assert not told(caplog, step, steps=5, kept=kept)
    kept.values.clear()
    assert "masks" in told(caplog, step, steps=8, kept=kept)


def test_variables_of_the_function_are_found_in_its_text(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = None

    def train() -> None:
        best, hidden, rate, loss = 9.0, 0, 0.1, 0.0
        for step, batch in zip(session.steps(5), [1], strict=False):
            out, hidden = batch + hidden, hidden + 1
            loss = out * rate
            best = min(best, loss)
            print(step)
        print(best, loss)

    forgotten = ForgottenState(TrackedState())
    forgotten.entered(train, ())
    forgotten.begin()
    forgotten.begin()
    assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == [
        "hidden",
        "best",
        "[1]",
    ]


def test_a_tensor_whose_memory_was_given_back_is_not_read(tmp_path: Path) -> None:
    """To read it would end the process: the storage of parameters that are gathered is resized to nothing."""
    code = """
import torch
from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState
freed = torch.ones(1 << 20)
def train():
    return freed
looking = ForgottenState(TrackedState())
looking.entered(train, ())
looking.step_ended()
freed.untyped_storage().resize_(0)
looking.step_ended()
print("lived")
"""
    script = tmp_path / "train.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "lived\n"), done.stderr


def test_tensors_that_a_tracked_module_gets_in_a_step_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model, ready = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    prune.identity(ready, "weight")  # type: ignore[no-untyped-call]

    def step() -> None:
        for each in (model, ready):
            prune.l1_unstructured(each, "weight", 0.5)  # type: ignore[no-untyped-call]

    (said,) = told(caplog, step, model=model, ready=ready).splitlines()
    assert "model.weight_mask, model.weight_orig" in said and "before session.track" in said


def test_a_switch_of_torch_that_a_step_sets_is_named(caplog: pytest.LogCaptureFixture) -> None:
    before = torch.get_default_dtype()
    kinds = itertools.cycle([torch.float64, torch.float32])

    try:
        said = told(caplog, lambda: torch.set_default_dtype(next(kinds)))
    finally:
        torch.set_default_dtype(before)
    assert "torch's default dtype" in said and "deterministic" not in said


class Proxy:
    """An object of the script that cannot be looked at."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("there is no object behind this proxy")


def test_what_cannot_be_looked_at_ends_the_looks_by_name_and_not_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looking, proxy = ForgottenState(TrackedState()), Proxy()

    def train() -> object:
        return proxy

    looking.entered(train, ())
    for _ in range(4):
        looking.step_ended()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "there is no object behind this proxy" in told and "not looked for" in told
