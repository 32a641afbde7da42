"""Refuse what a callback may not change in a step's tail: weights, optimizer, a tracked state of its own.

All of that is as it was where the step's body ended, when ranks go back to there or to a snapshot. They go
through the tail again then, but call each of its callbacks once: what these had changed would be lost. The
same change in an event of the body belongs to the step, and is made again with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from holdfast.clean.samples import ChosenValues, SeenValues
from holdfast.integrations.hf import refusals
from holdfast.integrations.hf.callbacks import is_kept
from holdfast.integrations.own_attributes import is_framework
from holdfast.state import digest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_STATE = "the state_dict of "
_LOOKS = 3
"""In so many first steps values are compared. Later in events other than on_step_end only: a device would
have to be waited for in each step."""


class Marks(NamedTuple):
    """What tells whether tracked objects have changed. `counted`: without a wait for a device, by the words
    for each; `values`: of all their tensors, `seen` some; None: those are not looked at now."""

    counted: dict[str, Hashable]
    values: ChosenValues | None
    seen: SeenValues | None


class Tail:
    """The tails of this process's steps, as the callbacks of a handler see them."""

    def __init__(self, handler: Any, trainer: Any) -> None:
        self._handler, self._trainer = handler, trainer
        self._looks = 0

    def look(self, event: str) -> Marks | None:
        """Before an event: what its callbacks may not change. None: none of the script's own hears of it."""
        self._looks += event == "on_step_end"
        if not self._hearing(event):
            return None
        objects = self._tracked()
        values = None
        if event != "on_step_end" or self._looks <= _LOOKS:
            values = ChosenValues(each.detach() for thing in objects.values() for each in _tensors(thing))
        counted = {name: _counted(thing) for name, thing in objects.items()}
        return Marks(counted, values, values.take() if values is not None else None)

    def refuse_changes(self, event: str, before: Marks | None) -> None:
        """Raise SessionError if the event has changed one of them."""
        if before is None:
            return
        for name, thing in self._tracked().items():
            if _counted(thing) != before.counted.get(name):
                self._refuse(name, event)
        if before.values is not None and before.seen is not None and before.values.changed(before.seen):
            self._refuse("the weights or a tracked state", event)

    def _refuse(self, what: str, event: str) -> None:
        names = what.removeprefix(_STATE) if what.startswith(_STATE) else ", ".join(self._hearing(event))
        if event == "on_train_begin":
            why = (
                "a process that takes a dead rank's place calls it, too: do it only `if state.global_step == "
                "0`, or before train()"
            )
        else:
            why = (
                "that is called in a step's tail, which is no part of the step, and only once: do it in "
                "on_optimizer_step or on_step_begin (and make a state of its own in __init__)"
            )
        refusals.refuse(f"the callback {names}, which changes {what} in {event},", why)

    def _hearing(self, event: str) -> list[str]:
        """The script's own callbacks that do something in this event."""
        kinds = [each if isinstance(each, type) else type(each) for each in self._handler.callbacks]
        own = [kind for kind in kinds if not is_framework(kind) and hasattr(kind, event)]
        return [kind.__name__ for kind in own if not is_framework(getattr(kind, event))]

    def _tracked(self) -> dict[str, Any]:
        """What is tracked, by the words for it."""
        found: dict[str, Any] = {"the weights": _weights(self._trainer.model)}
        optimizer = getattr(self._trainer.optimizer, "optimizer", self._trainer.optimizer)
        if optimizer is not None:
            found["the optimizer"] = [_options(optimizer), dict(optimizer.state)]
        for each in filter(is_kept, self._handler.callbacks):
            found.setdefault(_STATE + type(each).__name__, []).append(each.state_dict())
        return found


def _weights(model: torch.nn.Module) -> list[Any]:
    weights = [*model.parameters(), *model.buffers()]
    return [weights, [each.requires_grad for each in weights]]


def _options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The groups of an optimizer, with the ids of their parameters."""
    return [{**group, "params": [id(each) for each in group["params"]]} for group in optimizer.param_groups]


def _counted(tree: Any) -> Hashable:
    """What differs when something in it has changed: where each tensor is and how often it was written
    (writes to `.data` are not counted), and anything else itself."""
    return tuple(map(_count, _leaves(tree)))


def _count(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return leaf.data_ptr(), digest.writes(leaf)
    return leaf if type(leaf) in (bool, int, float, str, type(None)) else repr(leaf)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _leaves(tree) if isinstance(leaf, torch.Tensor))


def _leaves(tree: Any) -> Iterator[Any]:
    """What a state consists of."""
    if isinstance(tree, dict | list | tuple):
        for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield id(key) if isinstance(key, torch.Tensor) else key
            yield from _leaves(each)
    else:
        yield tree
