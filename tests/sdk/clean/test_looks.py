"""Looking for what a script forgets costs it no memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Iterator


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
