"""Copies of the weights that a framework's script makes as its training begins are named, and no others."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING

import torch

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState
from tests.sdk.clean.again.called import called_again

if TYPE_CHECKING:
    import pytest


class Distilling:
    """A callback. `early`: a reference that it has made before the training."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.early, self.start, self.late = copy.deepcopy(model), list[torch.Tensor](), list[torch.Tensor]()


def test_copies_are_named_that_the_training_makes(caplog: pytest.LogCaptureFixture) -> None:
    model, tracked = torch.nn.Linear(4, 4), TrackedState()
    tracked.add("model", model)
    callback, forgotten = Distilling(model), ForgottenState(tracked)
    forgotten.things = lambda: [callback]
    again = called_again(forgotten, tracked)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        again.entered()
        again.called()
        callback.start = [each.detach().clone() for each in model.parameters()]  # on_train_begin
        again.steps_begin(10, seeded=True, tells=True)
        callback.late = [each.detach().clone() for each in model.parameters()]  # the first loss
        with torch.no_grad():
            model.weight.add_(1)
        again.step_ended(tells=True)
        callback.late = [each.detach().clone() for each in model.parameters()]
        again.step_ended(tells=True)
    begun, stepped = [record.getMessage() for record in caplog.records]
    assert "callback" not in begun and "Distilling.start[0]" in begun
    assert "Distilling.late[0]" in stepped
    assert "early" not in begun + stepped
