"""Keep the numbers that a script reports until the agent client's thread has time to read them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOSS = "loss"
"""The name of the number that is shown as the loss: `session.report(loss=...)`."""
Offer = tuple[int, int, Any]
"""A loss that is offered: its generation and step, and what float() makes a number."""
NUMBER_MAX = 1e15
"""Larger numbers are not reported."""


class Reports:
    """The newest value of each name."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._step = 0
        self._lock = threading.Lock()
        self._offered: Offer | None = None
        self._script_tells = False  # the script itself has reported a loss
        self.turn = threading.Lock()
        """Held by the thread that reads what steps have left behind: numbers, anomalies, gradients."""

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Keep these values. Tensors are not read here, because that may wait for a GPU."""
        kept = {
            name: value.detach() if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        with self._lock:
            self._values.update(kept)
            self._step = step
            if LOSS in values:
                self._script_tells, self._offered = True, None

    def offer(self, generation: int, step: int, loss: Any) -> None:
        """Keep the loss of this step, as a trainer gives it, unless the script reports one itself, to be
        shown and not judged. None: the step has had one, and it is not known which."""
        with self._lock:
            if not self._script_tells:
                self._offered = generation, step, loss

    def take_offer(self) -> Offer | None:
        """The newest loss that was offered since the last call."""
        with self._lock:
            offered, self._offered = self._offered, None
        return offered

    def read(self, strange: Callable[[str, Any, int], None]) -> dict[str, float]:
        """What was added since the last call, as numbers.

        Calls `strange(name, value, step)` for each other value: NaN, Inf, NUMBER_MAX or more, or
        no number."""
        with self._lock:
            values, self._values, step = self._values, {}, self._step
        numbers: dict[str, float] = {}
        for name, value in values.items():
            found = number(value)
            if found is not None and abs(found) < NUMBER_MAX:
                numbers[name] = found
            else:
                strange(name, value, step)
        return numbers


def number(value: Any) -> float | None:
    """The value as a number; None if it is not one."""
    try:
        return float(value)
    except Exception:  # a user's object may raise anything, and the agent client's thread must live
        return None
