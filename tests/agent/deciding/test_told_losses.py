"""The loss that a script reports reaches the leader: rank 0's, where nobody measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.diagnosis import GradientReport
from holdfast.ipc.messages.gradients import Gradients
from tests.agent.deciding.test_aggregate import running, told

if TYPE_CHECKING:
    from tests.agent.deciding.test_aggregate import Stage


def reported(stage: Stage, **values: float) -> list[GradientReport]:
    return told(stage.said("report", step=7, values=values), GradientReport)


def test_rank_0_tells_its_loss() -> None:
    stage = running()
    (found,) = reported(stage, loss=2.5, rate=0.1)
    assert (found.rank, found.step, found.parameters) == (0, 7, 0)
    assert (found.loss, found.loss_state) == (2.5, "known")
    assert reported(stage, rate=0.1) == []


def test_a_loss_that_is_measured_is_not_told_too() -> None:
    stage = running()
    measured = Gradients(1, 7, parameters=2).encode()
    assert len(told(stage.said(**measured), GradientReport)) == 1
    assert reported(stage, loss=2.5) == []


def test_a_trainers_loss_is_told_and_counts_as_none_that_is_measured() -> None:
    stage = running()
    offered = Gradients(1, 7, loss=0.5, loss_state="known").encode()
    (found,) = told(stage.said(**offered), GradientReport)
    assert (found.step, found.parameters, found.loss) == (7, 0, 0.5)
    assert [each.loss for each in reported(stage, loss=2.5)] == [2.5]
