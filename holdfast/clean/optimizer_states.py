"""Notice that a script changes an optimizer's state before the optimizer's step: curvature, statistics.

Such a step cannot be undone: its state is no copy. Optimizers of torch.optim have no method for that, and are
not looked at; others (the script's, those of other packages) are, in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import digest, wrapped

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_PLAIN = (bool, int, float, str, type(None))


class OptimizerStates:
    """The states of tracked optimizers at a step's start."""

    def __init__(self) -> None:
        self._own: list[torch.optim.Optimizer] = []
        self._marks: list[list[Hashable]] = []

    def arm(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Watch these from the next step on."""
        self._own = [each for each in optimizers if not type(each).__module__.startswith("torch.optim")]
        self._marks = []

    def begin(self) -> None:
        """Begin a step."""
        self._marks = [_marks(each) for each in self._own]

    def changed(self) -> torch.optim.Optimizer | None:
        """One whose state has changed since the step's start; None: none has."""
        known = zip(self._own, self._marks, strict=False)
        return next((each for each, marks in known if _marks(each) != marks), None)


def _marks(optimizer: torch.optim.Optimizer) -> list[Hashable]:
    found: list[Hashable] = []
    for key, values in wrapped.local(optimizer).state.items():
        found.append(id(key) if isinstance(key, torch.Tensor) else key)
        found.extend(map(_mark, values.values() if isinstance(values, dict) else (values,)))
    return found


def _mark(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return id(value), digest.writes(value)
    return value if type(value) in _PLAIN else id(value)


def tensors(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """All tensors in the states of these optimizers."""
    states = [wrapped.local(each).state for each in optimizers]
    held = [value for state in states for value in state.values() if isinstance(value, dict)]
    return [each for value in held for each in value.values() if isinstance(each, torch.Tensor)]
