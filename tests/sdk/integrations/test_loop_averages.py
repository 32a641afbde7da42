"""Averages of the weights that nothing tracks are refused, and only those that a training holds."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from holdfast.errors import SessionError
from tests.sdk.integrations.test_own_loop import BATCHES, Training

if TYPE_CHECKING:
    from collections.abc import Iterator


class Averages:
    """Holds an average, as a script's own object may."""

    def __init__(self, average: AveragedModel) -> None:
        self.average = average

    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state)


@pytest.fixture(autouse=True)
def averages() -> Iterator[None]:
    """None outlives its test: others would find it."""
    yield
    gc.collect()


def test_an_average_of_the_weights_that_is_not_tracked_is_refused_also_if_it_is_made_later() -> None:
    training = Training()
    made: list[AveragedModel] = []
    with pytest.raises(SessionError, match=r"a loop: the AveragedModel is not kept.*before epochs"):
        training.run(lambda *_: made.append(AveragedModel(training.model)))
    assert training.did == [(0, batch) for batch in range(BATCHES)]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What nobody holds stays as long as its cycles do."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_an_average_of_an_earlier_training_that_nobody_holds_any_more_is_not_refused() -> None:
    earlier: Any = AveragedModel(torch.nn.Linear(2, 1))
    earlier.itself = [earlier]
    del earlier
    training = Training()
    training.run(lambda *_: training.step())
    assert len(training.did) == 2 * BATCHES


def test_averages_of_the_weights_are_kept_also_within_another_object() -> None:
    training = Training()
    average, within = AveragedModel(training.model), AveragedModel(training.model)
    training.session.track(average=average, averages=Averages(within))
    training.run(lambda *_: average.update_parameters(training.model))
    assert len(training.did) == 2 * BATCHES
