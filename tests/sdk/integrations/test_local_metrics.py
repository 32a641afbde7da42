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


SUMS, ROWS = torchmetrics.MeanMetric(), torchmetrics.CatMetric()


@pytest.mark.parametrize("kept", [False, True])
def test_a_metric_in_a_variable_of_the_script_is_kept_if_its_state_dict_has_it(
    kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    state = TrackedState()
    looking = ForgottenState(state)
    for name, metric in (("sums", SUMS), ("rows", ROWS)):
        metric.reset()
        metric.persistent(kept)
        state.add(name, metric)

    def main() -> None:
        for _ in range(3):
            SUMS.update(torch.ones(()))
            ROWS.update(torch.ones(2))
            looking.step_ended()

    looking.entered(main, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        main()
    said = "\n".join(record.getMessage() for record in caplog.records if "SUMS" in record.getMessage())
    if kept:
        assert said == ""
    else:
        assert (
            "the state_dict of tracked modules leaves out: SUMS.mean_value" in said and "ROWS.value" in said
        )
