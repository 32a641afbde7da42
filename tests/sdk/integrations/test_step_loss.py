"""The loss of a trainer's step: what is shown where the script reports none itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from holdfast import Session
from tests.sdk.integrations.test_own_loop import BATCHES, Training

if TYPE_CHECKING:
    from collections.abc import Callable


def offered(session: Session) -> float | None:
    """The number that would be shown now; None: there is none."""
    found = session.runtime.reports.take_offer()
    return None if found is None or found[2] is None else float(found[2])


def loss(value: float) -> torch.Tensor:
    return torch.tensor(float(value), requires_grad=True) * 1.0


def of_steps(body: Callable[[Training, int], object], epochs: int = 1) -> list[float | None]:
    """What is shown after each step of a loop with this body."""
    training, shown = Training(), list[float | None]()
    training.session.after_step(lambda _step: shown.append(offered(training.session)))
    training.run(lambda _epoch, batch: body(training, batch), epochs)
    return shown


def test_each_step_has_one_loss() -> None:
    def body(training: Training, batch: int) -> None:
        training.loop.loss.add(loss(batch))
        training.step()

    assert of_steps(body) == [*map(float, range(BATCHES)), None]  # an epoch's end has none


def test_what_the_trainer_divides_is_a_mean_also_of_a_short_last_step() -> None:
    def body(training: Training, batch: int) -> None:
        training.loop.loss.add(loss(batch), 2)
        if batch % 2:
            training.step()

    assert of_steps(body) == [0.5, 2.5, 4.0]


def test_what_the_script_divides_is_added_up() -> None:
    def body(training: Training, batch: int) -> None:
        training.loop.loss.add(loss(batch) / 2)
        if batch % 2:
            training.step()

    assert of_steps(body) == [0.5, 2.5, 2.0]


def test_of_two_losses_in_a_batch_none_is_shown_from_then_on() -> None:
    def body(training: Training, batch: int) -> None:
        training.loop.loss.add(loss(batch))
        if batch == 2:  # the generator steps less often
            training.loop.loss.add(loss(-1.0))
        training.step()

    session, shown = Training().session, of_steps(body)
    assert shown == [0.0, 1.0, None, None, None, None]
    step = session.runtime.step_loss
    step.tell(1.0)
    step.tell(None)
    assert session.runtime.reports.take_offer() == (session.generation, 0, None)  # the old one goes


def test_a_broken_step_leaves_nothing_behind() -> None:
    session = Session()
    step = session.runtime.step_loss
    step.add(loss(5.0))
    step.begin()
    step.add(loss(2.0))
    step.end()
    assert offered(session) == 2.0


def test_a_loss_that_the_script_changes_in_place_is_shown_as_it_was() -> None:
    session = Session()
    step, total = session.runtime.step_loss, loss(2.0)
    step.add(total)
    total.detach().add_(40.0)
    step.end()
    assert offered(session) == 2.0


def test_an_optimizer_that_asks_again_changes_nothing() -> None:
    session = Session()
    step = session.runtime.step_loss
    for value in (3.0, 2.0):
        step.add_first(loss(value), 1)
    step.add_first(None, 1)
    step.end()
    assert offered(session) == 3.0


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_what_the_script_reports_stands(first: bool) -> None:
    session = Session()
    step = session.runtime.step_loss
    if first:
        session.report(loss=1.0)
    step.tell(2.0)
    if not first:
        session.report(loss=1.0)
    assert offered(session) is None
    assert session.runtime.reports.read(lambda *_: None) == {"loss": 1.0}
    step.tell(3.0)
    assert offered(session) is None


def test_a_loss_that_is_not_finite_is_no_anomaly() -> None:
    session = Session()
    session.runtime.step_loss.tell(math.nan)
    assert math.isnan(offered(session) or 0.0)
    assert not session.runtime.state.numeric_anomaly


def test_a_watch_of_gradients_gets_it_unless_the_script_gives_one() -> None:
    session, model = Session(), torch.nn.Linear(1, 1)
    session.watch(model)
    step = session.runtime.step_loss
    step.tell(2.0)
    assert session.runtime.gradients._loss[1] == 2.0
    session.check(torch.tensor(7.0))
    step.tell(3.0)
    assert float(session.runtime.gradients._loss[1]) == 7.0


def test_reading_waits_until_somebody_asks() -> None:
    """Adding up is not done in the training's thread: on a GPU it would wait."""
    session = Session()
    step = session.runtime.step_loss
    for _ in range(3):
        step.batch()
        step.add(loss(1.0), 3)
    step.end()
    found = session.runtime.reports.take_offer()
    assert found is not None and not isinstance(found[2], float | torch.Tensor)
    assert float(found[2]) == 1.0
