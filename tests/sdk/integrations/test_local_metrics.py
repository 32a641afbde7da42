"""A metric of torchmetrics in a variable of the function is named: what it adds up is in no state."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState

torchmetrics: Any = pytest.importorskip("torchmetrics")


@pytest.mark.parametrize("kept", [False, True])
def test_a_metric_in_a_variable_is_named_unless_it_is_tracked(
    caplog: pytest.LogCaptureFixture, kept: bool
) -> None:
    state = TrackedState()
    looking = ForgottenState(state)

    def main() -> None:
        mean = torchmetrics.MeanMetric()
        mean.persistent(kept)
        if kept:
            state.add("mean", mean)
        for _ in range(3):
            mean.update(torch.ones(()))
            looking.step_ended()

    looking.entered(main, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        main()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert said.startswith("the steps change what is not tracked: mean.mean_value, mean.weight.") is not kept
