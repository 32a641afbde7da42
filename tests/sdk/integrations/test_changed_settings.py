"""Settings of a framework's objects that a script changes in the training come back, and nothing else."""

from __future__ import annotations

import math
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import torch

from holdfast.integrations.changed_settings import ChangedSettings


class Strategy(StrEnum):
    STEPS = "steps"


def made(**more: Any) -> Any:
    own = {"clip": 1.0, "kinds": {"a": [1]}, "when": Strategy.STEPS, "device": object(), "step": 0}
    return SimpleNamespace(**own, **more)


def settings(*owners: Any) -> ChangedSettings:
    found = ChangedSettings(lambda: list(owners), frozenset({"step"}))
    found.begin()
    return found


def test_what_has_changed_comes_back_in_another_process() -> None:
    args, options = made(rank=0), {"beta": 0.1, "gamma": 2}
    own = settings(args, options)
    assert own.capture() == [{}, {}]
    args.clip, args.when, args.added, args.step, args._private = 0.5, "no", [1], 7, 3
    args.kinds["a"].append(2)
    args.device = object()
    options["beta"] = 0.2
    changed = own.capture()
    assert changed == [
        {"clip": 0.5, "when": "no", "added": [1], "kinds": {"a": [1, 2]}},
        {"beta": 0.2},
    ]
    late, theirs = made(rank=1), {"beta": 0.1, "gamma": 2}
    settings(late, theirs).apply(changed)
    assert (late.clip, late.when, late.added, late.kinds, late.rank) == (0.5, "no", [1], {"a": [1, 2]}, 1)
    assert theirs == {"beta": 0.2, "gamma": 2}


def test_settings_have_the_names_of_their_owners_and_are_plain() -> None:
    args = made(rate=0.1, _private=3)
    found = dict(settings(args, {"beta": 0.5}).named("args", "options"))
    assert found == {
        **{"args.clip": 1.0, "args.kinds": {"a": [1]}, "args.kinds['a']": [1], "args.kinds['a'][0]": 1},
        **{"args.when": "steps", "args.rate": 0.1, "options.beta": 0.5},
    }
    assert type(found["args.when"]) is str, "an enumeration is compared by its text"


def test_a_survivor_goes_back() -> None:
    args = made()
    own = settings(args)
    args.clip = 0.5
    early = own.capture()
    args.clip, args.when, args.added = 0.1, "no", 1
    args.kinds["a"].append(2)
    own.apply(early)
    assert (args.clip, args.when, args.kinds) == (0.5, Strategy.STEPS, {"a": [1]})
    assert isinstance(args.when, Strategy)
    assert not hasattr(args, "added")
    args.kinds["a"].append(3)
    own.apply([])
    assert (args.clip, args.kinds) == (1.0, {"a": [1]})


def test_what_is_no_plain_data_is_left_alone() -> None:
    args, device = made(), object()
    own = settings(args, None)
    args.clip, args.device = device, "cpu"
    assert own.capture() == [{}, {}]
    own.apply([])
    assert (args.clip, args.device) == (device, "cpu")


def test_tensors_and_numbers_that_equal_nothing_are_compared_too() -> None:
    args = SimpleNamespace(scales=[torch.ones(2), math.nan], limit=math.nan, on=1)
    own = settings(args)
    assert own.capture() == [{}]
    args.scales[0].add_(1)
    args.on = True
    (changed,) = own.capture()
    assert changed.keys() == {"scales", "on"}
    own.apply([])
    assert args.scales[0].tolist() == [1.0, 1.0]
    assert (type(args.on), args.on) == (int, 1)
