"""What objects of the standard library and of other packages hold is named, where they tell of it."""

from __future__ import annotations

import collections
import configparser
import functools
import importlib
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.sdk.clean.looks.counted import Mixer
from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = """
import random

import torch


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4))
        self.at, self.is_full, self._calls = 0, False, 0

    def forward(self):
        self.rows[self.at] += 1
        self.at, self.is_full, self._calls = (self.at + 1) % 4, self._calls > 0, self._calls + 1


class Environment:
    def __init__(self):
        self.at = 0.0

    def reset(self):
        self.at = 0.0

    def step(self):
        self.at += 1


class Outer:
    def __init__(self, env):
        self.env = env

    def reset(self):
        self.env.reset()

    def step(self):
        self.env.step()


class Average:
    def __init__(self):
        self.shadow = [1.0]

    def update(self):
        self.shadow[0] *= 0.9

    def state_dict(self):
        return {"shadow": self.shadow}

    def load_state_dict(self, state):
        self.shadow = state["shadow"]


class Clusters:
    def __init__(self):
        self.seen = 0

    def partial_fit(self):
        self.seen += 1


class Augment:
    def __init__(self):
        self.calls, self._rng = 0, random.Random(1)

    def __call__(self):
        self.calls += 1
        return self._rng.random()


class Bar:
    def __init__(self):
        self.n = 0

    def update(self):
        self.n += 1


def numbers():
    for at in range(99):
        yield at
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return installed(tmp_path_factory.mktemp("installed"), "package_of_others")


def installed(place: Path, name: str) -> Any:
    """The package, installed by this name."""
    folder = place / "site-packages"
    folder.mkdir()
    (folder / f"{name}.py").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return importlib.import_module(name)


def test_objects_of_packages_that_tell_of_their_state_are_named(
    caplog: pytest.LogCaptureFixture, package: Any
) -> None:
    env, average, clusters = package.Outer(package.Environment()), package.Average(), package.Clusters()
    augment, bar, numbers = package.Augment(), package.Bar(), package.numbers()
    still = package.Environment()

    def step() -> object:
        env.step(), average.update(), clusters.partial_fit(), augment(), bar.update()
        return next(numbers), still

    said = told(caplog, step)
    for name in ("env.env.at", "average.shadow[0]", "clusters.seen", "augment._rng", "numbers.at"):
        assert name in said, name
    assert "bar" not in said and "calls" not in said and "still" not in said


def test_an_object_of_a_package_that_is_tracked_is_not_named(
    caplog: pytest.LogCaptureFixture, package: Any
) -> None:
    average = package.Average()
    assert told(caplog, average.update, average=average) == ""


def test_what_a_module_of_a_package_counts_beside_its_state_is_named(
    caplog: pytest.LogCaptureFixture, package: Any
) -> None:
    """A queue of embeddings whose place is an attribute: its rows come back, its place does not."""
    memory = package.Memory()

    def step() -> None:
        memory()

    said = told(caplog, step, memory=memory)
    assert "the state_dict of tracked modules leaves out: memory.at" in said and "memory.is_full" in said
    assert "what is not tracked" not in said
    assert "rows" not in said and "_calls" not in said


def test_a_module_whose_attributes_are_called_like_a_metrics_is_looked_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = torch.nn.Linear(1, 1)
    model._persistent, model._defaults, model.calls = True, 3, 0  # type: ignore[assignment]

    def step() -> None:
        model.calls += 1  # type: ignore[assignment, operator]

    said = told(caplog, step, model=model)
    assert (
        "the state_dict of tracked modules leaves out: model.calls" in said and "cannot be seen" not in said
    )


@pytest.mark.parametrize("name", ["torch_averages", "torchrl", "lightning_bolts"])
def test_a_package_named_like_one_that_is_known_is_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    average = installed(tmp_path, name).Average()

    def step() -> None:
        average.update()

    assert "average.shadow[0]" in told(caplog, step)


def test_what_mappings_of_the_standard_library_hold_is_named(caplog: pytest.LogCaptureFixture) -> None:
    counts, settings = collections.UserDict(at=0), configparser.ConfigParser()
    settings["loss"] = {"weight": "1"}
    key = Mixer()
    weak, inner = weakref.WeakKeyDictionary[Mixer, float](), {"at": 0}
    seen, chain, seeds = MappingProxyType(inner), collections.ChainMap({"at": 0}), np.random.SeedSequence(1)
    weak[key] = 1.0

    def step() -> object:
        counts["at"] += 1
        settings["loss"]["weight"] += "1"
        weak[key] *= 0.9
        chain["at"] += 1
        inner["at"] += 1
        return seeds.spawn(1), seen

    said = told(caplog, step)
    for name in ("counts.data", "settings._sections", "weak.data", "chain.maps", "inner", "seeds"):
        assert name in said, name


def test_the_parts_of_a_partial_function_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    part = functools.partial(max, [1.0], key=len)

    def step() -> None:
        part.args[0].append(0.5)

    assert "part.args[0]" in told(caplog, step)
